//! The emulator's command line.

use std::ffi::OsString;
use std::os::fd::RawFd;

use super::plan::{Accel, NicModel, VmPlan};
use super::store::Parts;

/// Descriptors of the guest's serial lines and first files.
#[derive(Debug, Clone)]
pub(crate) struct Descriptors {
    /// The console: output of the kernel and the first process.
    pub(crate) console: RawFd,
    /// The first process's marks.
    pub(crate) marks: RawFd,
    /// The script's standard output.
    pub(crate) stdout: RawFd,
    /// The script's standard error.
    pub(crate) stderr: RawFd,
    /// The archive with the first files.
    pub(crate) initramfs: RawFd,
    /// The plugin that counts instructions.
    pub(crate) counter: Option<RawFd>,
    /// The queues of cards not wired by a hub, by card: `1a`.
    pub(crate) wires: Vec<(String, Vec<RawFd>)>,
    /// The cables to another machine.
    pub(crate) cables: Option<CableEnds>,
}

/// One machine's ends of the cables between two.
#[derive(Debug, Clone)]
pub(crate) struct CableEnds {
    /// Which one of the two it is.
    pub(crate) side: Side,
    /// A card and a stream of frames for each cable.
    pub(crate) ends: Vec<(NicModel, RawFd)>,
    /// The emulator's monitor, which pulls and plugs them.
    pub(crate) monitor: RawFd,
}

/// The arguments of the emulator for this plan.
pub(crate) fn arguments(plan: &VmPlan, parts: &Parts, at: &Descriptors) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    for folder in parts.firmware.iter().filter(|folder| folder.is_dir()) {
        words.extend(["-L".into(), folder.into()]);
    }
    let mut add = |option: &str, value: String| words.extend([option.into(), value.into()]);
    // KVM's own interrupt controller cannot remap interrupts.
    let chip = if plan.iommu && plan.accel == Accel::Kvm { ",kernel-irqchip=split" } else { "" };
    add("-M", format!("q35{chip}"));
    if plan.iommu {
        // Before the devices that are behind it.
        add("-device", "intel-iommu,intremap=on".into());
    }
    match plan.accel {
        Accel::Tcg => {
            // With a thread for each CPU, QEMU 10 ends now and then: an IOMMU's translations change beside accesses through them
            // (`iotlb_to_section`, an assertion).
            let threads = if plan.iommu { "single" } else { "multi" };
            add("-accel", format!("tcg,thread={threads}"));
            add("-cpu", "max".into());
        }
        Accel::Kvm => {
            add("-accel", "kvm".into());
            add("-cpu", "host".into());
        }
        Accel::Counting => {
            add("-accel", "tcg,thread=single".into());
            add("-icount", "shift=0,sleep=off".into());
            add("-cpu", "max".into());
        }
    }
    add("-m", plan.memory_mib.to_string());
    add("-smp", plan.cpus.to_string());
    for (id, descriptor) in [("console", at.console), ("stdout", at.stdout), ("stderr", at.stderr)] {
        add("-chardev", format!("socket,id={id},fd={descriptor}"));
        add("-serial", format!("chardev:{id}"));
    }
    add("-chardev", format!("socket,id=marks,fd={}", at.marks));
    add("-device", "isa-debugcon,iobase=0xe9,chardev=marks".into());
    add("-device", "isa-debug-exit,iobase=0xf4,iosize=4".into());
    // Without "multidevs" files of different file systems could get the same number.
    add("-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap".into());
    add("-device", "virtio-9p-pci,fsdev=host,mount_tag=host".into());
    for (number, pair) in (1..).zip(&plan.pairs) {
        for side in [Side::A, Side::B] {
            wire_up(pair.model, number, side, &at.wires, &mut add);
        }
    }
    if let Some(cables) = &at.cables {
        add("-chardev", format!("socket,id=monitor,fd={}", cables.monitor));
        add("-mon", "chardev=monitor,mode=control".into());
        for (number, (model, end)) in (1..).zip(&cables.ends) {
            let id = cable_id(number);
            add("-netdev", format!("stream,id={id},server=off,addr.type=fd,addr.str={end}"));
            let mac = format!("52:54:00:01:{number:02x}:0{}", cables.side.letter());
            let chassis = 2 * VmPlan::MAX_PAIRS + number;
            plug_in(*model, Slot { netdev: &id, mac: &mac, chassis, queues: None }, &mut add);
        }
    }
    add("-initrd", format!("/proc/self/fd/{}", at.initramfs));
    add("-append", kernel_command_line(plan));
    if let Some(share) = &plan.share {
        let mut option = OsString::from("local,id=share,security_model=none,path=");
        option.push(share);
        words.extend(["-fsdev".into(), option]);
        words.extend(["-device".into(), "virtio-9p-pci,fsdev=share,mount_tag=share".into()]);
    }
    if let Some((counter, share)) = at.counter.zip(plan.share.as_ref()) {
        let mut option = OsString::from(format!("file=/proc/self/fd/{counter}"));
        for (name, file) in [("counts", COUNTS), ("symbols", SYMBOLS)] {
            option.push(format!(",{name}="));
            option.push(share.join(file));
        }
        words.extend(["-plugin".into(), option]);
    }
    words.extend(["-kernel".into(), parts.kernel.clone().into()]);
    words.extend(["-nodefaults", "-nographic", "-no-reboot"].map(Into::into));
    words
}

/// The counter's files in the shared folder.
const COUNTS: &str = "counts";
const SYMBOLS: &str = "symbols";

/// The monitor's name of a cable.
pub(crate) fn cable_id(number: usize) -> String {
    format!("cable{number}")
}

/// One of two cards, or of two machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    A,
    B,
}

impl Side {
    pub(crate) fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
        }
    }
}

/// One card, and its end of the wire: a hub with two ports, or descriptors of its queues.
fn wire_up(
    model: NicModel,
    pair: usize,
    side: Side,
    wires: &[(String, Vec<RawFd>)],
    add: &mut impl FnMut(&str, String),
) {
    let (letter, chassis) = match side {
        Side::A => ('a', 2 * pair - 1),
        Side::B => ('b', 2 * pair),
    };
    let card = format!("{pair}{letter}");
    let netdev = format!("net{card}");
    let mac = format!("52:54:00:00:{pair:02x}:0{letter}");
    let queues = wires.iter().find(|(wired, _)| *wired == card).map(|(_, queues)| queues);
    match queues {
        Some(queues) => {
            let queues: Vec<String> = queues.iter().map(RawFd::to_string).collect();
            add("-netdev", format!("tap,id={netdev},fds={}", queues.join(":")));
        }
        None => add("-netdev", format!("hubport,id={netdev},hubid={pair}")),
    }
    let slot = Slot { netdev: &netdev, mac: &mac, chassis, queues: queues.map(Vec::len) };
    plug_in(model, slot, add);
}

/// A card's slot, and its peer.
struct Slot<'s> {
    netdev: &'s str,
    mac: &'s str,
    chassis: usize,
    queues: Option<usize>,
}

fn plug_in(model: NicModel, slot: Slot<'_>, add: &mut impl FnMut(&str, String)) {
    let Slot { netdev, mac, chassis, queues } = slot;
    // igb needs a slot with all functions free, which only a separate port has.
    let bus = if model == NicModel::E1000 {
        String::new()
    } else {
        add("-device", format!("pcie-root-port,id=port{chassis},bus=pcie.0,chassis={chassis}"));
        format!(",bus=port{chassis}")
    };
    let (device, more) = match model {
        // AF_XDP zero-copy needs a device that uses the platform's DMA rules.
        NicModel::Virtio => {
            // An interrupt for each queue of either direction, one for the settings and one for the control queue.
            let several = queues.map(|queues| format!(",mq=on,rss=on,hash=on,vectors={}", 2 * queues + 2));
            let more = several.unwrap_or_default();
            ("virtio-net-pci", format!(",disable-legacy=on,iommu_platform=on{more}"))
        }
        other => (other.name(), String::new()),
    };
    add("-device", format!("{device}{bus},netdev={netdev},mac={mac},romfile={more}"));
}

fn kernel_command_line(plan: &VmPlan) -> String {
    // The first four reduce the console's output and end the emulator on a panic, the others save time.
    let words = "console=ttyS0 quiet loglevel=3 panic=-1 nokaslr mitigations=off tsc=reliable no_timer_check";
    let iommu = plan.iommu.then_some("intel_iommu=on iommu=nopt");
    [words]
        .into_iter()
        .chain(iommu)
        .chain(plan.kernel_options.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join(" ")
}
