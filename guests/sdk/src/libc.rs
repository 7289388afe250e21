//! What the SDK has instead of functions of wasi-libc.
//!
//! wasi-libc compares one byte after the other. Names in a cluster are long and start alike, so
//! that this took a tenth of a guest's time.

use std::cmp::Ordering;

/// Compares bytes of the same number: as numbers and one by one, because `==` and `cmp` of arrays
/// and slices call `memcmp`.
fn compare(one: &[u8], other: &[u8]) -> Ordering {
    debug_assert_eq!(one.len(), other.len());
    let ((ones, one), (others, other)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    for (one, other) in ones.iter().zip(others) {
        if u64::from_le_bytes(*one) != u64::from_le_bytes(*other) {
            return u64::from_be_bytes(*one).cmp(&u64::from_be_bytes(*other));
        }
    }
    for (one, other) in one.iter().zip(other) {
        if one != other {
            return one.cmp(other);
        }
    }
    Ordering::Equal
}

#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, reason = "the names of libc, which get pointers")]
mod symbols {
    use std::slice::from_raw_parts;

    // Not inlined: hundreds of places call it, most of them rarely.
    #[inline(never)]
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
        if len == 0 {
            return 0;
        }
        // SAFETY: The caller promises so many bytes at both.
        let (one, other) = unsafe { (from_raw_parts(one, len), from_raw_parts(other, len)) };
        super::compare(one, other) as i32
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
        // SAFETY: As above.
        unsafe { memcmp(one, other, len) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::compare;

    proptest! {
        #[test]
        fn bytes_are_compared_in_their_order(
            start in prop::collection::vec(any::<u8>(), 0..40),
            (one, other) in (0..20_usize).prop_flat_map(|len| {
                let end = || prop::collection::vec(any::<u8>(), len);
                (end(), end())
            }),
        ) {
            let (one, other) = ([&*start, &one].concat(), [&*start, &other].concat());
            prop_assert_eq!(compare(&one, &other), one.cmp(&other));
            prop_assert_eq!(compare(&one, &one), std::cmp::Ordering::Equal);
        }
    }
}
