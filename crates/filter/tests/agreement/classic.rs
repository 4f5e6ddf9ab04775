//! A classic BPF machine, as plain as its description (`bpf(4)`).

use filter::CbpfInstruction;

/// What a program returns for a frame.
pub(crate) fn run(program: &[CbpfInstruction], frame: &[u8]) -> u32 {
    let (mut a, mut x, mut cells, mut at) = (0_u32, 0_u32, [0_u32; 16], 0);
    let load = |size: u16, from: u64| -> Option<u32> {
        let bytes = frame.get(usize::try_from(from).ok()?..)?;
        Some(match size {
            0x00 => u32::from_be_bytes(*bytes.first_chunk()?),
            0x08 => u16::from_be_bytes(*bytes.first_chunk()?).into(),
            _ => (*bytes.first()?).into(),
        })
    };
    loop {
        let CbpfInstruction { code, jt, jf, k } = program[at];
        at += 1;
        let with = if code & 0x08 != 0 { x } else { k };
        match code & 0x07 {
            0x00 => {
                let loaded = match code & 0xe0 {
                    0x00 => Some(k),
                    0x20 => load(code & 0x18, k.into()),
                    0x40 => load(code & 0x18, u64::from(x) + u64::from(k)),
                    0x60 => Some(cells[k as usize]),
                    _ => Some(frame.len() as u32),
                };
                let Some(loaded) = loaded else { return 0 };
                a = loaded;
            }
            0x01 => match load(0x10, k.into()) {
                Some(first) if code == 0xb1 => x = (first & 0xf) * 4,
                _ => return 0,
            },
            0x02 => cells[k as usize] = a,
            0x04 => {
                let computed = match code & 0xf0 {
                    0x00 => Some(a.wrapping_add(with)),
                    0x10 => Some(a.wrapping_sub(with)),
                    0x20 => Some(a.wrapping_mul(with)),
                    0x30 => a.checked_div(with),
                    0x40 => Some(a | with),
                    0x50 => Some(a & with),
                    0x60 => Some(a.checked_shl(with).unwrap_or(0)),
                    0x70 => Some(a.checked_shr(with).unwrap_or(0)),
                    0x80 => Some(a.wrapping_neg()),
                    0x90 => a.checked_rem(with),
                    _ => Some(a ^ with),
                };
                let Some(computed) = computed else { return 0 };
                a = computed;
            }
            0x05 => {
                let holds = match code & 0xf0 {
                    0x00 => {
                        at += k as usize;
                        continue;
                    }
                    0x10 => a == with,
                    0x20 => a > with,
                    _ => a >= with,
                };
                at += usize::from(if holds { jt } else { jf });
            }
            0x06 => return k,
            _ => x = a,
        }
    }
}
