//! Numbers of bytes as people write them, with a suffix: `1mb`.

/// Parses a number of bytes with one of Redis's suffixes. No digits are 0, as in Redis.
pub(crate) fn memory(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit: u64 = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    let number = if digits == 0 { 0 } else { text[..digits].parse::<u64>().ok()? };
    number.checked_mul(unit)
}
