//! Work with a known number of instructions, to check a counter of instructions.

use std::{io, os::fd::OwnedFd};

use crate::bpf_program;

/// Executes two instructions `times` times, and a few around them; nothing on architectures other than x86-64.
pub fn loop_of_two(times: u64) {
    #[cfg(target_arch = "x86_64")]
    if times > 0 {
        // SAFETY: the loop changes the register it is given and the flags, and nothing else.
        unsafe {
            std::arch::asm!("2:", "dec {left}", "jnz 2b", left = inout(reg) times => _, options(nomem, nostack));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = times;
}

/// Makes `times` system calls without effect: the kernel refuses to close an invalid descriptor.
pub fn failing_calls(times: u64) {
    for _ in 0..times {
        // SAFETY: no descriptor has this number.
        let answer = unsafe { libc::close(-1) };
        debug_assert_eq!(answer, -1);
    }
}

/// Fills `bytes` bytes of a buffer by one string instruction (`rep stosb`), `times` times; on other architectures than
/// x86-64 it does nothing.
pub fn string_fills(buffer: &mut [u8], times: u64) {
    for _ in 0..times {
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: the instruction writes as many bytes as the buffer has, from its first on.
            unsafe {
                std::arch::asm!(
                    "rep stosb",
                    inout("rcx") buffer.len() => _,
                    inout("rdi") buffer.as_mut_ptr() => _,
                    in("al") 0u8,
                    options(nostack, preserves_flags)
                );
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        buffer.fill(0);
    }
}

/// An XDP program with `more` more instructions than the shortest one; for [`run`](crate::bpf_program::run).
///
/// # Errors
/// The kernel's error: loading programs needs CAP_BPF.
pub fn xdp_program(more: usize) -> io::Result<OwnedFd> {
    /// `r0 += 1` of 64 bits: also one CPU instruction.
    const ADD: [u8; 8] = [0x07, 0, 0, 0, 1, 0, 0, 0];
    /// `r0 = 1`, XDP_DROP.
    const DROP: [u8; 8] = [0xb7, 0, 0, 0, 1, 0, 0, 0];
    const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
    let body = std::iter::once(DROP).chain(std::iter::repeat_n(ADD, more));
    let program: Vec<[u8; 8]> = body.chain([DROP, EXIT]).collect();
    bpf_program::load("known", &program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_work_is_done() {
        loop_of_two(0);
        loop_of_two(1000);
        failing_calls(3);
        let mut buffer = [7; 100];
        string_fills(&mut buffer[10..90], 2);
        assert_eq!(buffer.iter().filter(|byte| **byte == 7).count(), 20);
    }
}
