//! Marks in this program's instructions, for a counter outside the machine that executes them.
//!
//! An emulator's plugin sees every instruction (`lab`, `vm/counter/counter.c`). A mark is an instruction that does nothing,
//! `nopl DISPLACEMENT(%rax)` with a displacement that compilers do not choose: on a real CPU it costs an instruction slot.
//! On other architectures marks are empty.

/// The kinds of marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A count begins.
    Begin,
    /// The count is complete; threads lose their roles.
    End,
    /// Discards the last complete count: it was a warm-up.
    Forget,
    /// The calling thread is a sender while it works.
    Sender,
    /// The calling thread is a receiver while it works.
    Receiver,
    /// The calling thread begins to work.
    Work,
    /// Its work is done; later instructions belong to no packet.
    Rest,
}

/// Executes a mark.
#[inline]
pub fn mark(mark: Mark) {
    match mark {
        Mark::Begin => nop::begin(),
        Mark::End => nop::end(),
        Mark::Forget => nop::forget(),
        Mark::Sender => nop::sender(),
        Mark::Receiver => nop::receiver(),
        Mark::Work => nop::work(),
        Mark::Rest => nop::rest(),
    }
}

#[cfg(target_arch = "x86_64")]
mod nop {
    use std::arch::asm;

    /// As in `counter.c`: the letters LR, then the mark's number.
    const MARK: u32 = 0x4c52_0000;

    macro_rules! nop {
        ($($name:ident $number:literal)*) => {$(
            #[inline]
            pub(super) fn $name() {
                // SAFETY: this form of NOP accesses no memory and changes no register.
                unsafe {
                    asm!("nop dword ptr [rax + {mark}]", mark = const MARK + $number, options(nostack, preserves_flags));
                }
            }
        )*};
    }

    nop! { begin 1 end 2 forget 3 sender 4 receiver 5 work 6 rest 7 }
}

#[cfg(not(target_arch = "x86_64"))]
mod nop {
    pub(super) fn begin() {}
    pub(super) fn end() {}
    pub(super) fn forget() {}
    pub(super) fn sender() {}
    pub(super) fn receiver() {}
    pub(super) fn work() {}
    pub(super) fn rest() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_in_the_program_and_change_nothing() {
        use Mark::{Begin, End, Forget, Receiver, Rest, Sender, Work};
        for each in [Begin, End, Forget, Sender, Receiver, Work, Rest] {
            mark(each);
        }
        if cfg!(target_arch = "x86_64") {
            let program = std::fs::read("/proc/self/exe").unwrap();
            for number in 1..=7 {
                let code = [0x0f, 0x1f, 0x80, number, 0x00, 0x52, 0x4c];
                assert!(program.windows(code.len()).any(|bytes| bytes == code), "mark {number}");
            }
        }
    }
}
