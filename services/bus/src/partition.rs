//! Which partition a key belongs to: the same for every program that writes or reads. Pure.
//!
//! This is what the Java clients do by default, and librdkafka as `murmur2_random`; a test compares it with the
//! producer on real brokers.

/// The partition of a key in a topic of so many partitions.
pub fn partition_of(key: &[u8], partitions: i32) -> i32 {
    // The sign is dropped, not turned round; so it fits.
    let positive = (murmur2(key) & 0x7fff_ffff).cast_signed();
    positive.checked_rem(partitions).unwrap_or(0)
}

/// `MurmurHash2` of 32 bits with the seed that Kafka uses.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    // The hash is defined for lengths modulo 2^32; no key is that long.
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut hash = SEED ^ length;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    for (at, byte) in rest.iter().enumerate() {
        hash ^= u32::from(*byte) << (8 * at);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the tests of Kafka's Java client (`UtilsTest.testMurmur2`).
    #[test]
    fn it_is_the_hash_of_the_java_client() {
        let table = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ];
        for (key, expected) in table {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), expected, "{key}");
        }
    }

    #[test]
    fn partitions_are_in_range() {
        for key in [&b""[..], b"a", b"ab", b"abcd", &[0xff; 40]] {
            for count in [1, 2, 3, 8, 64, 1_000] {
                assert!((0..count).contains(&partition_of(key, count)));
            }
        }
        assert_eq!(partition_of(b"a", 0), 0, "no partitions, no panic");
    }
}
