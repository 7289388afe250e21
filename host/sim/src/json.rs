//! The bytes of a stored object: as they are served, or compressed.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use lz4_flex::block::{compress_with_dict, decompress_with_dict};

use crate::status::{Result, Status};

/// The most bytes of a dictionary. The compressor reads all of it for each object.
const LONGEST_DICTIONARY: usize = 4096;

/// The JSON of an object.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    /// As it is served.
    Plain(Bytes),
    /// In one LZ4 block.
    Compressed {
        block: Arc<[u8]>,
        /// The bytes of the JSON.
        length: u32,
        dictionary: Dictionary,
    },
}

/// What the objects of a collection have in common: the start of its first object. Most of
/// the bytes of a Kubernetes object are names of fields and values that others have too, so
/// that a block with a dictionary is a fraction of one without.
#[derive(Clone, Debug)]
pub(crate) struct Dictionary(Arc<[u8]>);

impl Dictionary {
    /// The dictionary for objects like this one.
    pub(crate) fn of(json: &[u8]) -> Self {
        let length = json.len().min(LONGEST_DICTIONARY);
        Self(json.get(..length).unwrap_or_default().into())
    }
}

impl Json {
    /// The bytes as they are served.
    pub(crate) fn bytes(&self) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Plain(json) => Ok(Cow::Borrowed(json)),
            Self::Compressed {
                block,
                length,
                dictionary: Dictionary(dictionary),
            } => decompress_with_dict(block, *length as usize, dictionary)
                .map(Cow::Owned)
                .map_err(|error| Status::internal(format!("stored object: {error}"))),
        }
    }

    /// The length of the bytes as they are served.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(json) => json.len(),
            Self::Compressed { length, .. } => *length as usize,
        }
    }

    /// The same in fewer bytes, if that saves something.
    pub(crate) fn compressed(self, dictionary: &Dictionary) -> Self {
        let Self::Plain(json) = &self else {
            return self;
        };
        let block = compress_with_dict(json, &dictionary.0);
        match u32::try_from(json.len()) {
            Ok(length) if block.len() < json.len() => Self::Compressed {
                block: block.into(),
                length,
                dictionary: dictionary.clone(),
            },
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn compressed_bytes_are_the_same_bytes(
            first: Vec<u8>, repeated in "[a-z]{0,60}", times in 0_usize..200, rest: Vec<u8>,
        ) {
            let mut bytes = repeated.repeat(times).into_bytes();
            bytes.extend_from_slice(&rest);
            let plain = Json::Plain(bytes.clone().into());
            for dictionary in [Dictionary::of(&first), Dictionary::of(&bytes)] {
                let compressed = plain.clone().compressed(&dictionary);
                prop_assert_eq!(compressed.len(), bytes.len());
                prop_assert_eq!(&*compressed.bytes().expect("its own block"), &bytes[..]);
            }
        }
    }

    #[test]
    fn an_object_like_the_first_takes_a_fraction() {
        let pod = |name: &str| {
            let pod = json!({
                "kind": "Pod", "apiVersion": "v1",
                "metadata": {"name": name, "namespace": "team-a", "labels": {"app": "web"}},
                "spec": {
                    "containers": [{"name": "main", "image": "registry.example.com/web:1.4.2"}],
                    "nodeName": "node-0001", "restartPolicy": "Always", "schedulerName": "default",
                },
                "status": {"phase": "Running", "conditions": [
                    {"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"},
                ]},
            });
            Json::Plain(pod.to_string().into_bytes().into())
        };
        let first = pod("web-1");
        let dictionary = Dictionary::of(&first.bytes().expect("plain"));
        let compressed = pod("web-2").compressed(&dictionary);
        let Json::Compressed { block, length, .. } = &compressed else {
            panic!("{compressed:?}");
        };
        assert!(block.len() * 5 < *length as usize, "{}", block.len());
        assert_eq!(
            compressed.bytes().expect("its own block"),
            pod("web-2").bytes().expect("plain")
        );
    }
}
