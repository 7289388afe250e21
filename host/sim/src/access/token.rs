//! Tokens of `ServiceAccounts`: JSON Web Tokens, signed with a key of this
//! server's own.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

/// The issuer, and the default audience.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";

/// The claims of a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claims {
    pub(crate) aud: Vec<String>,
    /// Seconds since 1970.
    pub(crate) exp: i64,
    pub(crate) iat: i64,
    pub(crate) iss: String,
    /// The token's own id.
    pub(crate) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(crate) kubernetes: Bound,
    pub(crate) nbf: i64,
    pub(crate) sub: String,
}

/// The account that a token is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub(crate) namespace: String,
    pub(crate) serviceaccount: Account,
}

/// Name and uid of an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Signs tokens and recognizes its own.
pub(crate) struct Key([u8; 64]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// A key made from a secret.
    pub(crate) fn new(secret: &[u8]) -> Self {
        let mut key = [0; 64];
        for (to, from) in key.iter_mut().zip(Sha256::digest(secret)) {
            *to = from;
        }
        Key(key)
    }

    /// The token with these claims.
    pub(crate) fn sign(&self, claims: &Claims) -> String {
        let header = json!({"alg": "HS256", "typ": "JWT"}).to_string();
        let content = serde_json::to_vec(claims).unwrap_or_default();
        let signed = format!(
            "{}.{}",
            BASE64_URL_SAFE_NO_PAD.encode(header.as_bytes()),
            BASE64_URL_SAFE_NO_PAD.encode(&content)
        );
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.signature(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// The claims of a token, if this key signed it.
    pub(crate) fn read(&self, token: &str) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        if BASE64_URL_SAFE_NO_PAD.decode(signature).ok()? != self.signature(signed.as_bytes()) {
            return None;
        }
        let (_, content) = signed.split_once('.')?;
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(content).ok()?).ok()
    }

    /// HMAC-SHA256 (RFC 2104).
    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let padded = |pad: u8| self.0.map(|byte| byte ^ pad);
        let inner = Sha256::new()
            .chain_update(padded(0x36))
            .chain_update(message)
            .finalize();
        let outer = Sha256::new()
            .chain_update(padded(0x5c))
            .chain_update(inner)
            .finalize();
        outer.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::prelude::BASE64_STANDARD;

    fn claims() -> Claims {
        Claims {
            aud: vec![ISSUER.to_owned()],
            exp: 2,
            iat: 1,
            iss: ISSUER.to_owned(),
            jti: "id".to_owned(),
            kubernetes: Bound {
                namespace: "n".to_owned(),
                serviceaccount: Account {
                    name: "bot".to_owned(),
                    uid: "1".to_owned(),
                },
            },
            nbf: 1,
            sub: "system:serviceaccount:n:bot".to_owned(),
        }
    }

    #[test]
    fn the_signature_is_that_of_the_standard() {
        // Test case 2 of RFC 4231, whose key is not hashed first.
        let mut key = [0; 64];
        for (to, from) in key.iter_mut().zip(b"Jefe") {
            *to = *from;
        }
        let signature = Key(key).signature(b"what do ya want for nothing?");
        assert_eq!(
            BASE64_STANDARD.encode(&signature),
            "W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM="
        );
    }

    #[test]
    fn a_token_is_read_by_the_key_that_signed_it() {
        let key = Key::new(b"one");
        let token = key.sign(&claims());
        assert!(token.starts_with("eyJ"), "{token}");
        assert_eq!(key.read(&token), Some(claims()));
        assert_eq!(Key::new(b"two").read(&token), None);
        let mut forged = claims();
        forged.kubernetes.serviceaccount.name = "other".to_owned();
        let forged = Key::new(b"two").sign(&forged);
        let (content, _) = forged.rsplit_once('.').expect("parts");
        let (_, signature) = token.rsplit_once('.').expect("parts");
        assert_eq!(key.read(&format!("{content}.{signature}")), None);
        for nonsense in ["", ".", "a.b", "a.b.c", "garbage"] {
            assert_eq!(key.read(nonsense), None);
        }
    }
}
