//! Identities as hexadecimal digits, for the files of the local folder.

/// The digits of these bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of these digits, or why they are none.
pub fn unhex<const N: usize>(text: &str) -> Result<[u8; N], &'static str> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return Err("an identity has the wrong length");
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16)
            .map_err(|_| "an identity is not a hexadecimal number")?;
    }
    Ok(bytes)
}
