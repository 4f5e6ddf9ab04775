//! Verdicts of filters that run as XDP programs in this kernel.

use aya::{
    EbpfLoader, TestRun, TestRunOptions, VerifierLogLevel,
    programs::{ProgramError, Xdp},
};
use filter::{EbpfInstruction, FilterSet};

/// Test runs accept verdicts that are not XDP actions; here they number the filter that matched.
const FIRST_ANSWER: u32 = 100;
const OTHERWISE: u32 = 99;
/// The kernel refuses shorter frames.
pub(crate) const LEAST_FRAME: usize = 14;

/// Filters in the kernel.
pub(crate) struct Kernel(aya::Ebpf);

/// Loads filters; keeps the kernel's types, because reading them takes longer than all loading.
pub(crate) struct Loader(EbpfLoader<'static>);

impl Loader {
    /// `None`, with a printed skip, when this process may not load programs; a panic when everything is required.
    pub(crate) fn new() -> Option<Self> {
        let mut loader = EbpfLoader::new();
        loader.verifier_log_level(VerifierLogLevel::DISABLE);
        let mut loader = Self(loader);
        let Err(error) = loader.load(&FilterSet::new([])) else { return Some(loader) };
        testing::skip(format_args!("BPF programs cannot be loaded here: {error:?}"));
        None
    }

    /// Filters as a program whose verdict is the number of the first match.
    pub(crate) fn load(&mut self, filters: &FilterSet) -> Result<Kernel, ProgramError> {
        let answers: Vec<_> = (FIRST_ANSWER as i32..).take(filters.len()).collect();
        let body = filters.to_ebpf(&answers, OTHERWISE as i32, 30_000);
        let body = body.expect("the tests' filters are short enough");
        // `data_end` and `data` of `struct xdp_md`, into the places where the function expects them.
        let load = |dst, offset| EbpfInstruction { code: 0x61, dst, src: 1, offset, imm: 0 };
        let code = [load(2, 4), load(1, 0)].into_iter().chain(body);
        let code: Vec<u8> = code.flat_map(EbpfInstruction::to_bytes).collect();
        let mut ebpf = self.0.load(&object(&code)).expect("the object is right");
        let program: &mut Xdp = ebpf.program_mut("match").expect("in it").try_into().expect("XDP");
        program.load()?;
        Ok(Kernel(ebpf))
    }
}

impl Kernel {
    pub(crate) fn matches(&self, frame: &[u8]) -> bool {
        self.answer(frame).is_some()
    }

    /// The first filter that matches.
    pub(crate) fn answer(&self, frame: &[u8]) -> Option<usize> {
        let program: &Xdp = self.0.program("match").expect("loaded").try_into().expect("XDP");
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        let verdict = program.test_run(options).expect("the program runs").return_value;
        (verdict != OTHERWISE).then(|| (verdict - FIRST_ANSWER) as usize)
    }
}

/// An object file with one XDP program: `elf(5)`.
fn object(code: &[u8]) -> Vec<u8> {
    const HEADER: usize = 64;
    let names = b"\0xdp\0license\0.symtab\0.strtab\0match\0";
    let name = |name: &str| {
        let name = [b"\0", name.as_bytes(), b"\0"].concat();
        (names.windows(name.len()).position(|at| *at == name).expect("in the table") + 1) as u32
    };
    let license = b"GPL\0";
    let mut symbols = vec![0; 24];
    symbols.extend(name("match").to_le_bytes());
    symbols.extend([0x12, 0, 1, 0]); // a global function of section 1
    symbols.extend(0_u64.to_le_bytes());
    symbols.extend((code.len() as u64).to_le_bytes());

    let mut file = vec![0; HEADER];
    let mut headers = vec![0; 64];
    let sections: [(&str, u32, u64, &[u8]); 4] = [
        ("xdp", 1, 6, code),
        ("license", 1, 2, license),
        (".symtab", 2, 0, &symbols),
        (".strtab", 3, 0, names),
    ];
    for (title, kind, flags, content) in sections {
        let (link, first_global, entry) = if kind == 2 { (4_u32, 1_u32, 24_u64) } else { (0, 0, 0) };
        headers.extend(name(title).to_le_bytes());
        headers.extend(kind.to_le_bytes());
        for number in [flags, 0, file.len() as u64, content.len() as u64] {
            headers.extend(number.to_le_bytes());
        }
        headers.extend(link.to_le_bytes());
        headers.extend(first_global.to_le_bytes());
        headers.extend(8_u64.to_le_bytes());
        headers.extend(entry.to_le_bytes());
        file.extend(content);
        file.resize(file.len().next_multiple_of(8), 0);
    }
    let headers_at = file.len() as u64;
    file.extend(headers);
    file[..16].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file[16..20].copy_from_slice(&[1, 0, 247, 0]); // relocatable, BPF
    file[20] = 1;
    file[40..48].copy_from_slice(&headers_at.to_le_bytes());
    file[52..64].copy_from_slice(&[64, 0, 0, 0, 0, 0, 64, 0, 5, 0, 4, 0]);
    file
}
