//! Programs that are loaded for one device and read the card's timestamps from its driver. The loader creates their
//! maps but cannot load them.

use std::{
    collections::{HashMap, HashSet},
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use aya::{Ebpf, maps::Map};
use aya_obj::Object;
use sys::{bpf_program, btf::KernelTypes, netdev::NetdevSocket};

use crate::error::{BpfError, Cause, EINVAL, EOPNOTSUPP, errno, interface_name};

/// The program's placeholder for the kernel's function, whose number differs between kernels.
const PLACEHOLDER: i32 = 0x10000;
const FUNCTION: &str = "bpf_xdp_metadata_rx_timestamp";
const CALL: u8 = 0x85;
const PSEUDO_KFUNC_CALL: u8 = 2;

/// Loads an object's XDP program `name` for the interface of this number; the object's maps are `ebpf`'s.
pub(crate) fn load(
    name: &'static str,
    object: &[u8],
    ebpf: &Ebpf,
    interface: u32,
) -> Result<OwnedFd, BpfError> {
    let unsupported = |on: String, source| BpfError::Unsupported {
        feature: "passing the card's timestamps to an XDP program".into(),
        on,
        source,
    };
    let here = |source| unsupported("here (since Linux 6.3)".into(), source);
    let function = KernelTypes::read().map_err(|source| here(source.into()))?.function(FUNCTION);
    let function = function.ok_or_else(|| here(format!("the kernel has no {FUNCTION}()").into()))?;
    let stamps = NetdevSocket::open().and_then(|mut netdev| netdev.hands_stamps_to_xdp(interface));
    if let Ok(Some(false)) = stamps {
        let source = "the driver does not list them (xdp-rx-metadata-features)";
        return Err(unsupported(format!("by {}", interface_name(interface)), source.into()));
    }
    let refused = |source: Cause| {
        let action = format!("load the BPF program '{name}' for {}", interface_name(interface));
        BpfError::or_capability(action, source, |source| match errno(&*source) {
            Some(EOPNOTSUPP | EINVAL) => unsupported(format!("by {}", interface_name(interface)), source),
            _ => BpfError::Load { program: name, source },
        })
    };
    let instructions = relocated(name, object, ebpf, function).map_err(refused)?;
    bpf_program::load_for_device(name, &instructions, interface).map_err(|source| refused(source.into()))
}

/// The program's instructions, with its maps and the kernel's function inserted.
fn relocated(name: &str, object: &[u8], ebpf: &Ebpf, function: u32) -> Result<Vec<[u8; 8]>, Cause> {
    let mut object = Object::parse(object)?;
    let described: HashMap<_, _> = object.maps.clone();
    let maps = ebpf.maps().filter_map(|(name, map)| {
        let (Map::Array(data) | Map::PerCpuArray(data) | Map::XskMap(data)) = map else { return None };
        Some((name, data.fd().as_fd().as_raw_fd(), described.get(name)?))
    });
    let text = HashSet::new(); // every function is inlined
    object.relocate_maps(maps, &text)?;
    let program = object.programs.get(name).ok_or("the object does not define it")?;
    let code = object.functions.get(&program.function_key()).ok_or("the program has no code")?;
    let bytes = code.instructions.iter().map(|instruction| {
        let (mut source, mut number) = (instruction.src_reg(), instruction.imm);
        if (instruction.code, source, number) == (CALL, 0, PLACEHOLDER) {
            (source, number) = (PSEUDO_KFUNC_CALL, function as i32);
        }
        let ([a, b], [c, d, e, f]) = (instruction.off.to_le_bytes(), number.to_le_bytes());
        [instruction.code, source << 4 | instruction.dst_reg(), a, b, c, d, e, f]
    });
    Ok(bytes.collect())
}
