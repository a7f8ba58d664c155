//! The byte-level alphabet: one printable character for each of the 256 bytes, as GPT-2 introduced it.
//!
//! Bytes that print in Latin-1 stand for themselves; the others take the characters from U+0100 on, in order. This
//! file knows nothing of vocabularies.

/// First character that stands for a byte that does not print.
const SHIFTED: u32 = 0x100;

/// The character that stands for a byte.
pub(super) fn character(byte: u8) -> char {
    if prints(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&other| !prints(other)).count() as u32;
    char::from_u32(SHIFTED + rank).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The characters of all bytes, in order.
pub(super) fn characters() -> [char; 256] {
    std::array::from_fn(|byte| character(byte as u8))
}

/// The byte for which a character stands.
pub(super) fn byte(character: char) -> Option<u8> {
    if let Ok(byte) = u8::try_from(character)
        && prints(byte)
    {
        return Some(byte);
    }
    let rank = u32::from(character).checked_sub(SHIFTED)?;
    // The 68 bytes that do not print, by rank: 0..=32, 127..=160, 173.
    match rank {
        0..=32 => Some(rank as u8),
        33..=66 => Some((rank + 94) as u8),
        67 => Some(173),
        _ => None,
    }
}

/// Whether the byte can occur in UTF-8 text.
pub(super) fn in_utf8(byte: u8) -> bool {
    !matches!(byte, 0xC0 | 0xC1 | 0xF5..)
}

fn prints(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character() {
        for (value, character) in characters().into_iter().enumerate() {
            assert_eq!(byte(character), Some(value as u8));
        }
        assert_eq!(
            [
                character(b' '),
                character(b'\n'),
                character(0),
                character(0xAD)
            ],
            ['Ġ', 'Ċ', 'Ā', 'Ń']
        );
        assert_eq!(byte(' '), None);
        assert_eq!(byte('\u{144}'), None);
    }
}
