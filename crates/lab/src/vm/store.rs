//! The emulator, its firmware and the kernels, unpacked below the user's cache folder.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::apt::{self, Apt};
use super::error::VmError;
use super::image;
use super::modules::{self, Modules};
use super::plan::{Kernel, KernelImage};

/// The store of downloads for virtual machines.
#[derive(Debug, Clone)]
pub struct VmStore {
    root: PathBuf,
}

/// Everything that one machine is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) emulator: PathBuf,
    pub(crate) firmware: Vec<PathBuf>,
    pub(crate) libraries: OsString,
    pub(crate) busybox: PathBuf,
    pub(crate) kernel: PathBuf,
    pub(crate) version: String,
    pub(crate) modules_folder: PathBuf,
    pub(crate) modules: Modules,
    /// The root folder of further packages.
    pub(crate) packages: Option<PathBuf>,
    /// The folder of the kernel that was unpacked for this machine alone.
    pub(crate) _unpacked: Option<TempDir>,
}

/// Written last, into a complete folder; holds the version. Change the number after a change to what a folder
/// has to contain.
const COMPLETE: &str = "complete-2";

const TOOLS: &str = "tools";

impl VmStore {
    /// `$XDG_CACHE_HOME/linerate/vm`, by default below `~/.cache`.
    pub fn of_user() -> Result<Self, VmError> {
        let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = cache.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
        Ok(Self { root: cache.ok_or(VmError::NoFolder)?.join("linerate/vm") })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Whether a machine with this kernel can start without a download.
    pub fn has(&self, kernel: Kernel) -> bool {
        self.complete(TOOLS) && self.complete(kernel.name())
    }

    /// Downloads and unpacks what a machine with this kernel needs and is missing: about 20 MB for the
    /// emulator and 110 to 150 MB for a kernel. `tell` receives a line of text before each step.
    ///
    /// Processes that do this at the same time wait for each other.
    pub fn get(&self, kernel: Kernel, mut tell: impl FnMut(&str)) -> Result<(), VmError> {
        if self.has(kernel) {
            return Ok(());
        }
        let _lock = self.locked()?;
        let (codename, archive) = apt::debian()?;
        if !self.complete(TOOLS) {
            tell("downloading the emulator");
            self.fill(TOOLS, |folder, apt_folder| get_tools(folder, apt_folder, &archive, &codename))?;
        }
        if !self.complete(kernel.name()) {
            tell(&format!("downloading Linux {kernel}"));
            let tools = Tools::of(&self.root.join(TOOLS));
            self.fill(kernel.name(), |folder, apt_folder| {
                let apt = Apt::open(apt_folder, &archive, &[kernel.suite()])?;
                let package = package_of(kernel.pinned(), |package| apt.has(package), &mut tell)?;
                get_kernel(folder, apt_folder, &apt, &package, &tools)
            })?;
        }
        Ok(())
    }

    /// Downloads and unpacks packages of this machine's release, with the dependencies that this machine lacks, for
    /// machines whose plan has the same list. The packages' scripts do not run.
    pub fn get_packages(&self, packages: &[String], mut tell: impl FnMut(&str)) -> Result<(), VmError> {
        let folder = packages_folder(packages);
        if self.complete(&folder) {
            return Ok(());
        }
        let _lock = self.locked()?;
        if self.complete(&folder) {
            return Ok(());
        }
        let (codename, archive) = apt::debian()?;
        tell(&format!("downloading {} and dependencies", packages.join(", ")));
        self.fill(&folder, |folder, apt_folder| {
            let apt = Apt::open(apt_folder, &archive, &[&codename])?;
            let names: Vec<&str> = packages.iter().map(String::as_str).collect();
            for package in apt.fetch_what_is_not_installed(&codename, &names)? {
                apt::unpack(&package, folder)?;
            }
            merge_usr(folder, Path::new("/"))?;
            Ok(codename.clone())
        })
    }

    /// The folder of packages that were downloaded before.
    pub(crate) fn packages(&self, packages: &[String]) -> Result<PathBuf, VmError> {
        let folder = packages_folder(packages);
        self.expect(&[(&folder, &packages.join(", "))])?;
        Ok(self.root.join(folder))
    }

    fn locked(&self) -> Result<File, VmError> {
        let unusable = |source| VmError::File { path: self.root.clone(), source };
        fs::create_dir_all(&self.root).map_err(unusable)?;
        let lock = File::create(self.root.join("lock")).map_err(unusable)?;
        lock.lock().map_err(unusable)?;
        Ok(lock)
    }

    /// The parts of a machine with this kernel.
    pub(crate) fn parts(&self, kernel: Kernel) -> Result<Parts, VmError> {
        self.expect(&[(TOOLS, "an emulator"), (kernel.name(), "a kernel")])?;
        let folder = self.root.join(kernel.name());
        let version = read_text(&folder.join(COMPLETE))?;
        self.parts_in(&folder, version, None)
    }

    /// The parts of a machine with the user's own kernel, which is unpacked for it.
    pub(crate) fn parts_of(&self, own: &KernelImage) -> Result<Parts, VmError> {
        self.expect(&[(TOOLS, "an emulator")])?;
        let tools = Tools::of(&self.root.join(TOOLS));
        let unpacked = TempDir::with_prefix("linerate-kernel-")
            .map_err(|source| VmError::File { path: env::temp_dir(), source })?;
        unpack_image(&own.image, &unpacked.path().join("vmlinux"), &tools)?;
        collect_modules(&own.modules, &unpacked.path().join("modules"), &tools)?;
        let bytes =
            fs::read(&own.image).map_err(|source| VmError::File { path: own.image.clone(), source })?;
        let file_name = || own.image.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let version = image::version(&bytes).unwrap_or_else(file_name);
        let folder = unpacked.path().to_owned();
        self.parts_in(&folder, version, Some(unpacked))
    }

    /// Required packages, with a description of each.
    fn expect(&self, folders: &[(&str, &str)]) -> Result<(), VmError> {
        let missing = folders.iter().filter(|(folder, _)| !self.complete(folder)).map(|(_, words)| *words);
        let missing: Vec<&str> = missing.collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(VmError::NotThere { what: missing.join(" and "), path: self.root.clone() })
    }

    fn parts_in(&self, folder: &Path, version: String, unpacked: Option<TempDir>) -> Result<Parts, VmError> {
        let tools = Tools::of(&self.root.join(TOOLS));
        let modules_folder = folder.join("modules");
        let index = read_text(&modules_folder.join("index"))?;
        Ok(Parts {
            emulator: tools.program("qemu-system-x86_64"),
            firmware: ["usr/share/qemu", "usr/share/seabios"].map(|path| tools.folder.join(path)).into(),
            busybox: tools.program("busybox"),
            libraries: tools.libraries(),
            kernel: folder.join("vmlinux"),
            version,
            modules: Modules::from_text(&index),
            modules_folder,
            packages: None,
            _unpacked: unpacked,
        })
    }

    fn complete(&self, folder: &str) -> bool {
        self.root.join(folder).join(COMPLETE).exists()
    }

    /// Fills a new folder; it appears complete or not at all.
    fn fill(
        &self,
        name: &str,
        work: impl FnOnce(&Path, &Path) -> Result<String, VmError>,
    ) -> Result<(), VmError> {
        let (new, apt) = (self.root.join("new"), self.root.join("apt"));
        let target = self.root.join(name);
        for leftover in [&new, &apt, &target] {
            remove(leftover)?;
        }
        create(&new)?;
        let version = work(&new, &apt)?;
        remove(&apt)?;
        write(&new.join(COMPLETE), version.as_bytes())?;
        fs::rename(&new, &target).map_err(|source| VmError::File { path: target, source })
    }
}

/// Programs from a folder of unpacked packages, otherwise the machine's own.
struct Tools {
    folder: PathBuf,
}

impl Tools {
    fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn program(&self, name: &str) -> PathBuf {
        let own = ["usr/bin", "bin"].map(|folder| self.folder.join(folder).join(name));
        let path = env::var_os("PATH").unwrap_or_default();
        let installed = env::split_paths(&path).map(|folder| folder.join(name));
        own.into_iter().chain(installed).find(|path| path.is_file()).unwrap_or_else(|| name.into())
    }

    fn libraries(&self) -> OsString {
        let folders = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|path| self.folder.join(path));
        env::join_paths(folders).unwrap_or_default()
    }

    /// The content of a compressed file.
    fn unpacked(&self, program: &str, path: &Path) -> Result<Vec<u8>, VmError> {
        let mut command = Command::new(self.program(program));
        command.env("LD_LIBRARY_PATH", self.libraries()).arg("-dc").arg(path);
        apt::output_of(command)
    }
}

fn get_tools(folder: &Path, apt_folder: &Path, archive: &str, codename: &str) -> Result<String, VmError> {
    // Debian 12's emulator has no igb; later releases are new enough.
    let backports = format!("{codename}-backports");
    let suites = if codename == "bookworm" { vec![codename, &backports] } else { vec![codename] };
    let apt = Apt::open(apt_folder, archive, &suites)?;
    let release = suites.last().copied().unwrap_or(codename);
    let packages = ["qemu-system-x86", "busybox-static", "zstd", "xz-utils"];
    for package in apt.fetch_what_is_not_installed(release, &packages)? {
        apt::unpack(&package, folder)?;
    }
    Ok(release.to_owned())
}

/// The package of a pinned version, or the suite's newest if the archive has dropped that version.
fn package_of(
    pinned: Option<&str>,
    has: impl FnOnce(&str) -> Result<bool, VmError>,
    tell: &mut impl FnMut(&str),
) -> Result<String, VmError> {
    let newest = "linux-image-amd64".to_owned();
    let Some(version) = pinned else { return Ok(newest) };
    let package = format!("linux-image-{version}");
    if has(&package)? {
        return Ok(package);
    }
    tell(&format!("the archive no longer has Linux {version}; downloading its newest kernel"));
    Ok(newest)
}

fn get_kernel(
    folder: &Path,
    apt_folder: &Path,
    apt: &Apt,
    package: &str,
    tools: &Tools,
) -> Result<String, VmError> {
    // The newest kernels are split: image, binary, modules.
    let parts = ["linux-image-", "linux-binary-", "linux-modules-"];
    let named = |name: &String| {
        parts.iter().any(|part| {
            name.strip_prefix(part).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    let packages: Vec<String> = apt.with_dependencies(package)?.into_iter().filter(named).collect();
    let version = packages.iter().find_map(|name| name.strip_prefix("linux-image-")).unwrap_or_default();
    let missing = |what: &str| VmError::Package { what: what.to_owned(), version: version.to_owned() };
    let unpacked = apt_folder.join("unpacked");
    create(&unpacked)?;
    for package in apt.download(&packages, &apt_folder.join("kernel"))? {
        apt::unpack(&package, &unpacked)?;
    }
    let places = [format!("boot/vmlinuz-{version}"), format!("usr/lib/modules/{version}/vmlinuz")];
    let image = places.iter().map(|place| unpacked.join(place)).find(|path| path.is_file());
    unpack_image(&image.ok_or_else(|| missing("vmlinuz"))?, &folder.join("vmlinux"), tools)?;
    let places = [format!("lib/modules/{version}"), format!("usr/lib/modules/{version}")];
    let all = places.iter().map(|place| unpacked.join(place)).find(|path| path.is_dir());
    collect_modules(&all.ok_or_else(|| missing("a folder of modules"))?, &folder.join("modules"), tools)?;
    Ok(version.to_owned())
}

/// The kernel itself if its format is known, otherwise the image unchanged.
fn unpack_image(image: &Path, target: &Path, tools: &Tools) -> Result<(), VmError> {
    let bytes = fs::read(image).map_err(|source| VmError::File { path: image.to_owned(), source })?;
    let Some(payload) = image::payload(&bytes) else { return write(target, &bytes) };
    let compressed = target.with_extension("compressed");
    write(&compressed, payload.compressed)?;
    let kernel = tools.unpacked(payload.unpacker, &compressed)?;
    remove(&compressed)?;
    let whole = kernel.len() == payload.unpacked_bytes && kernel.starts_with(b"\x7fELF");
    write(target, if whole { &kernel } else { &bytes })
}

/// Copies the modules that guests use, decompressed, and writes an index of them.
fn collect_modules(from: &Path, to: &Path, tools: &Tools) -> Result<(), VmError> {
    create(to)?;
    let all = modules::find(from).map_err(|source| VmError::File { path: from.to_owned(), source })?;
    let mut index = Modules::default();
    let mut wanted: Vec<String> = modules::wanted().map(str::to_owned).collect();
    while let Some(name) = wanted.pop() {
        // A missing module is built into the kernel.
        let Some(path) = all.get(&name) else { continue };
        if index.names().any(|known| known == name) {
            continue;
        }
        let content = match path.extension().and_then(|kind| kind.to_str()) {
            Some("xz") => tools.unpacked("xz", path)?,
            Some("zst") => tools.unpacked("zstd", path)?,
            _ => fs::read(path).map_err(|source| VmError::File { path: path.clone(), source })?,
        };
        wanted.extend(index.add(&name, &content));
        write(&to.join(&name).with_extension("ko"), &content)?;
    }
    write(&to.join("index"), index.to_text().as_bytes())
}

fn packages_folder(packages: &[String]) -> String {
    format!("packages-{}", packages.join("+"))
}

/// Moves what packages have in `/lib` and the like to where the links of these names in `root` lead.
fn merge_usr(folder: &Path, root: &Path) -> Result<(), VmError> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        let (from, to) = (folder.join(name), folder.join("usr").join(name));
        if from.is_dir() && root.join(name).is_symlink() {
            create(&to)?;
            let mut command = Command::new("cp");
            command.args(["-a", "-T"]).arg(&from).arg(&to);
            apt::output_of(command)?;
            fs::remove_dir_all(&from).map_err(|source| VmError::File { path: from, source })?;
        }
    }
    Ok(())
}

fn create(folder: &Path) -> Result<(), VmError> {
    fs::create_dir_all(folder).map_err(|source| VmError::File { path: folder.to_owned(), source })
}

fn write(path: &Path, content: &[u8]) -> Result<(), VmError> {
    fs::write(path, content).map_err(|source| VmError::File { path: path.to_owned(), source })
}

fn read_text(path: &Path) -> Result<String, VmError> {
    fs::read_to_string(path).map_err(|source| VmError::File { path: path.to_owned(), source })
}

fn remove(path: &Path) -> Result<(), VmError> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(VmError::File { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn packages_do_not_hide_the_links_of_a_merged_usr() {
        let (root, packages) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        symlink("usr/lib", root.path().join("lib")).unwrap();
        for folder in ["lib/x86", "usr/lib/x86", "sbin"] {
            create(&packages.path().join(folder)).unwrap();
        }
        write(&packages.path().join("lib/x86/one.so"), b"1").unwrap();
        write(&packages.path().join("usr/lib/x86/other.so"), b"2").unwrap();
        merge_usr(packages.path(), root.path()).unwrap();
        let there = |path: &str| packages.path().join(path).exists();
        assert!(there("usr/lib/x86/one.so") && there("usr/lib/x86/other.so") && !there("lib"));
        assert!(there("sbin"), "no link of this name");
    }

    #[test]
    fn a_pinned_kernel_is_taken_while_the_archive_has_it_and_then_the_newest() {
        let package = |pinned, is_there| {
            let mut told = String::new();
            let package = package_of(pinned, |_| Ok(is_there), &mut |words: &str| told.push_str(words));
            (package.unwrap(), told)
        };
        let newest = "linux-image-amd64".to_owned();
        assert_eq!(package(Some("7.3.4"), true), ("linux-image-7.3.4".to_owned(), String::new()));
        let words = "the archive no longer has Linux 7.3.4; downloading its newest kernel".to_owned();
        assert_eq!(package(Some("7.3.4"), false), (newest.clone(), words));
        assert_eq!(package(None, false), (newest, String::new()));
        let refused = package_of(Some("7.3.4"), |_| Err(VmError::NoFolder), &mut |_: &str| ());
        assert!(matches!(refused, Err(VmError::NoFolder)));
    }
}
