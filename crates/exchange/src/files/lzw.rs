//! LZW as TIFF has it: codes of 9 to 12 bits, the high bits first; the width grows one code early. Source: TIFF 6.0,
//! section 13.

const CLEAR: usize = 256;
const END: usize = 257;
const FIRST: usize = 258;
const CODES: usize = 4096;

/// Unpacks exactly as many bytes as `out` has; what follows is not looked at.
///
/// # Errors
/// The data end early, or have a code that does not exist; in words.
pub fn decode(data: &[u8], out: &mut [u8]) -> Result<(), String> {
    // Of each code: where the bytes that it stands for begin in `out`, and how many they are.
    let mut table = vec![(0usize, 0usize); CODES];
    let (mut next, mut width, mut before) = (FIRST, 9, None);
    let (mut word, mut bits, mut at, mut written) = (0u32, 0, 0, 0);
    while written < out.len() {
        while bits < width {
            let Some(byte) = data.get(at) else {
                return Err(format!("its LZW data end after {written} of {} bytes", out.len()));
            };
            (word, bits, at) = (word << 8 | u32::from(*byte), bits + 8, at + 1);
        }
        bits -= width;
        let code = (word >> bits) as usize & ((1 << width) - 1);
        match code {
            CLEAR => {
                (next, width, before) = (FIRST, 9, None);
                continue;
            }
            END => return Err(format!("its LZW data say that they end after {written} of {} bytes", out.len())),
            _ => {}
        }
        let start = written;
        match (code, before) {
            (0..CLEAR, _) => {
                out[written] = code as u8;
                written += 1;
            }
            (_, Some((from, length))) if code <= next => {
                // A code that is just being made is the string before and its own first byte.
                let (from, length) = if code == next { (from, length + 1) } else { table[code] };
                for k in 0..length.min(out.len() - written) {
                    out[written + k] = out[from + k];
                }
                written = (written + length).min(out.len());
            }
            _ => return Err(format!("its LZW data have the code {code}, which does not exist there")),
        }
        if let Some((from, length)) = before
            && next < CODES
        {
            // The string before and the first byte of this one follow each other in `out`.
            table[next] = (from, length + 1);
            next += 1;
        }
        if next + 1 >= 1 << width && width < 12 {
            width += 1;
        }
        before = Some((start, written - start));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(codes: &[(u32, u32)]) -> Vec<u8> {
        let bits: String = codes.iter().map(|(code, width)| format!("{code:0width$b}", width = *width as usize)).collect();
        let bytes = bits.as_bytes().chunks(8);
        bytes.map(|eight| u8::from_str_radix(&format!("{:0<8}", str::from_utf8(eight).unwrap()), 2).unwrap()).collect()
    }

    #[test]
    fn the_example_of_the_standard_and_what_is_wrong() {
        // TIFF 6.0, page 61: 7 7 7 8 8 7 7 6 6.
        let data = pack(&[(256, 9), (7, 9), (258, 9), (8, 9), (8, 9), (258, 9), (6, 9), (6, 9), (257, 9)]);
        let mut out = [0; 9];
        decode(&data, &mut out).unwrap();
        assert_eq!(out, [7, 7, 7, 8, 8, 7, 7, 6, 6]);
        assert!(decode(&data[..4], &mut out).unwrap_err().contains("end after"));
        assert!(decode(&data, &mut [0; 20]).unwrap_err().contains("say that they end after 9 of 20"));
        assert!(decode(&pack(&[(256, 9), (300, 9)]), &mut out).unwrap_err().contains("code 300"));
        assert!(decode(&pack(&[(256, 9), (7, 9), (300, 9)]), &mut out).unwrap_err().contains("code 300"));
    }
}
