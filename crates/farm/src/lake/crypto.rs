//! Cryptography for the signatures of requests: SHA-256 and its HMAC. Service-account keys, which sign with RSA, are
//! refused.

use hmac::{Hmac, KeyInit as _, Mac as _};
use object_store::client::{
    CryptoProvider, DigestAlgorithm, DigestContext, HmacContext, Signer, SigningAlgorithm,
};
use object_store::{Error, Result};
use sha2::{Digest as _, Sha256};

/// [`CryptoProvider`] without code in C.
#[derive(Debug)]
pub(super) struct Sha;

impl CryptoProvider for Sha {
    fn digest(&self, algorithm: DigestAlgorithm) -> Result<Box<dyn DigestContext>> {
        match algorithm {
            DigestAlgorithm::Sha256 => Ok(Box::new(Hashing::<Sha256>(Sha256::new(), Vec::new()))),
            other => Err(unsupported(&format!("the digest {other:?}"))),
        }
    }

    fn hmac(&self, algorithm: DigestAlgorithm, secret: &[u8]) -> Result<Box<dyn HmacContext>> {
        let made = match algorithm {
            DigestAlgorithm::Sha256 => Hmac::<Sha256>::new_from_slice(secret).ok(),
            _ => None,
        };
        let made = made.ok_or_else(|| unsupported(&format!("an HMAC with {algorithm:?}")))?;
        Ok(Box::new(Hashing(made, Vec::new())))
    }

    fn sign(&self, _: SigningAlgorithm, _: &[u8]) -> Result<Box<dyn Signer>> {
        let what =
            "keys of service accounts (give a token, or run where the cloud's metadata server has one)";
        Err(unsupported(what))
    }
}

fn unsupported(what: &str) -> Error {
    Error::NotSupported { source: format!("{what} cannot be used here").into() }
}

/// A hash in progress, and its value.
struct Hashing<H>(H, Vec<u8>);

impl DigestContext for Hashing<Sha256> {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finish(&mut self) -> Result<&[u8]> {
        self.1 = self.0.finalize_reset().to_vec();
        Ok(&self.1)
    }
}

impl HmacContext for Hashing<Hmac<Sha256>> {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finish(&mut self) -> Result<&[u8]> {
        self.1 = self.0.clone().finalize().into_bytes().to_vec();
        Ok(&self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hexadecimal(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn hashes_are_those_of_the_standards() {
        let mut digest = Sha.digest(DigestAlgorithm::Sha256).unwrap();
        digest.update(b"a");
        digest.update(b"bc");
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hexadecimal(digest.finish().unwrap()), expected);
        // RFC 4231, case 2.
        let mut mac = Sha.hmac(DigestAlgorithm::Sha256, b"Jefe").unwrap();
        mac.update(b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hexadecimal(mac.finish().unwrap()), expected);
    }
}
