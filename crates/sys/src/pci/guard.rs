//! The guard of a card: a separate process that waits until the card's owner ends for any reason, then stops the
//! card's DMA, binds the kernel's driver again and restores the interface's name and MTU.
//!
//! The guard keeps the DMA memory open: a card whose owner was killed keeps writing until the guard has stopped it,
//! and must not write to pages that belong to another process by then.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use super::{
    card::{Card, Way},
    command::stop_dma,
    error::PciError,
    group::DRIVER,
};
use crate::{netns::NetNs, rtnetlink::RouteSocket};

/// The argument by which a program is started as a guard.
pub const GUARD: &str = "guard-of-a-pci-card";

/// The program that [`run_guard`] runs in.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the program that calls [`run_guard`] when its only argument is [`GUARD`]; without it, no card is taken.
pub fn set_guard_program(program: impl Into<PathBuf>) {
    PROGRAM.get_or_init(|| program.into());
}

/// How long a driver may take to create its interface.
const INTERFACE_AT_MOST: Duration = Duration::from_secs(10);
/// The file with the number of huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// The owner's side of a guard.
pub(super) struct Guard {
    address: String,
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Guard {
    /// Starts the guard of a card, without a task yet.
    pub(super) fn start(card: &Card) -> Result<Self, PciError> {
        let Some(program) = PROGRAM.get() else {
            return Err(PciError::NoGuard { interface: card.interface.clone() });
        };
        // A process group of its own: Ctrl-C must reach only the owner.
        let mut child = Command::new(program)
            .arg(GUARD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(PciError::step("start", "the guard of a card"))?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut guard = Self { address: card.address.clone(), child, orders, answers };
        guard.order(&format!("parent {}", std::process::id()))?;
        Ok(guard)
    }

    /// Reserves huge pages where too few are free; the guard returns them at the end.
    pub(super) fn reserve(&mut self, pages: usize) -> Result<(), PciError> {
        let read = |name: &str| -> io::Result<usize> {
            let text = fs::read_to_string(Path::new(HUGE_PAGES).join(name))?;
            text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
        };
        let no_pages = |source| PciError::NoHugePages { pages, source };
        let missing = pages.saturating_sub(read("free_hugepages").map_err(no_pages)?);
        if missing == 0 {
            return Ok(());
        }
        self.order(&format!("pages {missing}"))?;
        add_pages(missing as i64).map_err(no_pages)
    }

    /// From now on the guard binds the card's driver again when this process ends.
    pub(super) fn watch(&mut self, card: &Card, memory: Option<i32>, way: Way) -> Result<(), PciError> {
        if let Some(fd) = memory {
            self.order(&format!("memory {fd}"))?;
        }
        self.order(&format!("interface {}", card.interface))?;
        self.order(&format!("mtu {}", card.mtu))?;
        self.order(&format!("driver {}", card.driver))?;
        self.order(&format!("way {}", way.name()))?;
        self.order(&format!("card {}", card.address))?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(PciError::step("read from", "the guard of a card"))?;
        if answer.trim() == "ready" {
            Ok(())
        } else {
            Err(PciError::Guard { address: self.address.clone(), said: answer.trim().into() })
        }
    }

    fn order(&mut self, line: &str) -> Result<(), PciError> {
        let orders = self.orders.as_mut().expect("orders are open until finish");
        writeln!(orders, "{line}").map_err(PciError::step("write to", "the guard of a card"))
    }

    /// Makes the guard return the card, and waits for it.
    pub(super) fn finish(&mut self) -> Result<(), PciError> {
        if self.orders.take().is_none() {
            return Ok(());
        }
        let mut said = String::new();
        self.answers.read_to_string(&mut said).ok();
        let status = self.child.wait().map_err(PciError::step("wait for", "the guard of a card"))?;
        if status.success() {
            Ok(())
        } else {
            Err(PciError::Guard { address: self.address.clone(), said: said.trim().into() })
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The guard has written the error to standard error.
        self.finish().ok();
    }
}

fn add_pages(pages: i64) -> io::Result<()> {
    let file = Path::new(HUGE_PAGES).join("nr_hugepages");
    let now: i64 = fs::read_to_string(&file)?.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
    let wanted = (now + pages).max(0);
    fs::write(&file, wanted.to_string())?;
    // The kernel reserves as many as it can, without an error.
    let got: i64 = fs::read_to_string(&file)?.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
    if pages > 0 && got < wanted { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
}

/// What a guard must undo, from the orders received so far.
#[derive(Default)]
struct Orders {
    parent: String,
    pages: i64,
    interface: String,
    mtu: u32,
    driver: String,
    /// Whether VFIO's driver has the card.
    is_vfio: bool,
    /// Open until the card is stopped.
    memory: Option<File>,
    /// The interface's namespace.
    namespace: Option<NetNs>,
    card: Option<PathBuf>,
}

/// The guard's side: returns when the owner has ended and everything is restored.
///
/// # Errors
/// What could not be undone.
pub fn run_guard() -> Result<(), PciError> {
    let mut orders = Orders::default();
    for line in io::stdin().lines() {
        // A broken line also means that the owner has ended.
        let Ok(line) = line else { break };
        orders.take(&line)?;
    }
    orders.undo()
}

impl Orders {
    fn take(&mut self, line: &str) -> Result<(), PciError> {
        let (what, value) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "parent" => self.parent = value.into(),
            "pages" => self.pages = value.parse().unwrap_or(0),
            "interface" => self.interface = value.into(),
            "mtu" => self.mtu = value.parse().unwrap_or(0),
            "driver" => self.driver = value.into(),
            "way" => self.is_vfio = value == Way::Vfio.name(),
            "memory" => {
                let path = format!("/proc/{}/fd/{value}", self.parent);
                self.memory = Some(File::open(&path).map_err(PciError::step("open", path))?);
            }
            "card" => {
                // The owner's first thread never leaves the namespace in which the interface was found.
                let path = format!("/proc/{}/ns/net", self.parent);
                self.namespace = Some(NetNs::open(&path).map_err(PciError::step("open", path))?);
                self.card = Some(Path::new("/sys/bus/pci/devices").join(value));
                println!("ready");
                io::stdout().flush().ok();
            }
            _ => {}
        }
        Ok(())
    }

    fn undo(mut self) -> Result<(), PciError> {
        let bound = self.card.take().map_or(Ok(()), |card| self.bind(&card));
        drop(self.memory);
        if self.pages > 0 {
            add_pages(-self.pages).map_err(PciError::step("write", HUGE_PAGES))?;
        }
        bound
    }

    fn bind(&self, card: &Path) -> Result<(), PciError> {
        if self.is_vfio {
            // The kernel waits until the owner's descriptors are closed, which stops the card.
            leave(card)?;
        } else {
            stop_dma(card)?;
        }
        if !card.join("driver").exists() {
            let bind = format!("/sys/bus/pci/drivers/{}/bind", self.driver);
            fs::write(&bind, address_of(card)).map_err(PciError::step("write", bind))?;
        }
        if let Some(namespace) = &self.namespace {
            namespace.enter().map_err(PciError::step("enter", "the interface's network namespace"))?;
        }
        let name = interface_of(card)?;
        let restored = RouteSocket::open().and_then(|mut route| {
            let link = route.link_by_name(&name)?;
            if link.name != self.interface {
                route.rename_link(link.index, &self.interface)?;
            }
            if link.mtu != self.mtu {
                route.set_mtu(link.index, self.mtu)?;
            }
            Ok(())
        });
        restored.map_err(|error| PciError::Guard {
            address: card.display().to_string(),
            said: format!("{error} (the interface was {}, with an MTU of {})", self.interface, self.mtu),
        })
    }
}

/// The name of the interface that the driver has created.
fn interface_of(card: &Path) -> Result<String, PciError> {
    let net = card.join("net");
    let deadline = Instant::now() + INTERFACE_AT_MOST;
    loop {
        let names = fs::read_dir(&net).into_iter().flatten().flatten();
        if let Some(name) = names.filter_map(|entry| entry.file_name().into_string().ok()).next() {
            return Ok(name);
        }
        if Instant::now() > deadline {
            let source = io::ErrorKind::TimedOut.into();
            return Err(PciError::step("find the interface in", net.display().to_string())(source));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Brings a card without a driver under VFIO's.
pub(super) fn enter_vfio(card: &Path) -> Result<(), PciError> {
    set_driver_override(card, DRIVER)?;
    let probe = "/sys/bus/pci/drivers_probe";
    fs::write(probe, address_of(card)).map_err(PciError::step("write", probe))
}

/// Takes a card from VFIO's driver, if that has it.
fn leave(card: &Path) -> Result<(), PciError> {
    set_driver_override(card, "")?;
    let driver = card.join("driver").canonicalize().ok();
    if driver.is_some_and(|driver| driver.ends_with(DRIVER)) {
        let unbind = card.join("driver/unbind");
        fs::write(&unbind, address_of(card))
            .map_err(PciError::step("write", unbind.display().to_string()))?;
    }
    Ok(())
}

fn set_driver_override(card: &Path, driver: &str) -> Result<(), PciError> {
    let path = card.join("driver_override");
    // An empty line: any driver.
    fs::write(&path, format!("{driver}\n")).map_err(PciError::step("write", path.display().to_string()))
}

fn address_of(card: &Path) -> &str {
    card.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
