//! Compressing the data of objects. The objects of a list are alike: the names of their
//! fields, their owners' kinds, their tolerations. LZ4 with one of them as dictionary takes
//! a fifth of the bytes of a pod, and reads them in less than a microsecond.

use std::sync::Arc;

use lz4_flex::block::{compress_with_dict, decompress_with_dict};

/// Data that is shorter is not compressed. The store's tests have small objects.
const SHORTEST: usize = if cfg!(test) { 8 } else { 64 };
/// The most bytes of a dictionary: all of it is read for each object that is compressed.
const LONGEST_DICTIONARY: usize = 4096;

/// What the objects of a segment have in common: the data of one of them. It lives until the
/// segment is listed with other fields, and as long as an object that it compresses.
#[derive(Debug)]
pub(super) struct Dictionary(Box<[u8]>);

/// A key and data in memory.
#[derive(Debug)]
pub(super) struct Packed {
    /// The key, then the data or its block.
    pub(super) bytes: Box<[u8]>,
    /// What the block was compressed with; none if it is the data itself.
    pub(super) dictionary: Option<Arc<Dictionary>>,
}

impl Dictionary {
    /// The dictionary for objects like the one with this data; none if it is too short.
    pub(super) fn of(data: &[u8]) -> Option<Arc<Self>> {
        let start = data.get(..data.len().min(LONGEST_DICTIONARY))?;
        (start.len() >= SHORTEST).then(|| Arc::new(Self(start.into())))
    }

    /// The data of a block that it has compressed; none if memory was damaged.
    pub(super) fn unpack(&self, block: &[u8], length: usize) -> Option<Vec<u8>> {
        let data = decompress_with_dict(block, length, &self.0).ok()?;
        (data.len() == length).then_some(data)
    }
}

impl Packed {
    /// Packs the data after its key, compressed if that is shorter.
    pub(super) fn new(key: &str, data: &[u8], dictionary: Option<&Arc<Dictionary>>) -> Self {
        let key = key.as_bytes();
        if let Some(dictionary) = dictionary.filter(|_| data.len() >= SHORTEST) {
            let block = compress_with_dict(data, &dictionary.0);
            if block.len() < data.len() {
                return Self {
                    bytes: [key, &block].concat().into(),
                    dictionary: Some(Arc::clone(dictionary)),
                };
            }
        }
        Self {
            bytes: [key, data].concat().into(),
            dictionary: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// LZ4 looks back 64 KiB at most.
    #[test]
    fn large_data_is_the_same_data() {
        let line = |number: u32| format!("{} of {number}; ", number.wrapping_mul(2_654_435_761));
        let data: String = (0..20_000).map(line).collect();
        let data = data.as_bytes();
        let dictionary = Dictionary::of(data).unwrap();
        for length in [65_000, 65_535, 65_536, 70_000, data.len()] {
            let data = &data[..length];
            let packed = Packed::new("", data, Some(&dictionary));
            assert!(packed.dictionary.is_some(), "{length}");
            let unpacked = dictionary.unpack(&packed.bytes, length);
            assert!(unpacked.as_deref() == Some(data), "{length}");
        }
        let packed = Packed::new("", data, Some(&dictionary));
        assert_eq!(dictionary.unpack(&packed.bytes, data.len() - 1), None);
    }

    proptest! {
        #[test]
        fn packed_data_is_the_same_data(
            sample: Vec<u8>, repeated in "[a-z]{0,60}", times in 0_usize..200, rest: Vec<u8>,
        ) {
            let mut data = repeated.repeat(times).into_bytes();
            data.extend_from_slice(&rest);
            for dictionary in [Dictionary::of(&sample), Dictionary::of(&data)] {
                let packed = Packed::new("ns/name", &data, dictionary.as_ref());
                let (key, block) = packed.bytes.split_at("ns/name".len());
                prop_assert_eq!(key, b"ns/name");
                if let Some(dictionary) = packed.dictionary {
                    prop_assert!(block.len() < data.len());
                    prop_assert_eq!(dictionary.unpack(block, data.len()), Some(data.clone()));
                } else {
                    prop_assert_eq!(block, &data[..]);
                }
            }
        }
    }
}
