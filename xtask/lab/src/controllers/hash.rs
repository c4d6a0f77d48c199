//! Template hashes, as the names of `ReplicaSets` and revisions carry them.

use serde::Serialize;

/// FNV-1a, 32 bits (Go's `fnv.New32a`).
const FNV_OFFSET: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;
/// `rand.SafeEncodeString`'s alphabet.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash of a template, salted with the count of collisions if there was one. The real one
/// hashes Go's in-memory form, so equal templates get other (but equally shaped) hashes there.
pub fn template_hash(
    template: &impl Serialize,
    collisions: Option<i32>,
) -> Result<String, serde_json::Error> {
    // Through a `Value`, whose keys are sorted: maps without an order would hash differently each
    // time.
    let mut bytes = serde_json::to_value(template)?.to_string().into_bytes();
    if let Some(count) = collisions {
        bytes.extend(count.to_le_bytes());
    }
    let hash = bytes
        .iter()
        .fold(FNV_OFFSET, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME));
    Ok(hash
        .to_string()
        .bytes()
        .map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]))
        .collect())
}
