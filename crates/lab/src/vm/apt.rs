//! Fetches Debian packages with this machine's apt, with lists and downloads in a folder of ours. The machine's
//! apt and dpkg stay unchanged, and no root is needed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::VmError;

/// apt with separate state for some suites of the Debian archive.
#[derive(Debug)]
pub(crate) struct Apt {
    folder: PathBuf,
    options: Vec<OsString>,
}

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

impl Apt {
    /// Fetches the package lists of `suites` into `folder`.
    pub(crate) fn open(folder: &Path, archive: &str, suites: &[&str]) -> Result<Self, VmError> {
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = folder.join(part);
            fs::create_dir_all(&part).map_err(|source| VmError::File { path: part, source })?;
        }
        let signed =
            if Path::new(KEYRING).exists() { format!("[signed-by={KEYRING}] ") } else { String::new() };
        let sources: String =
            suites.iter().map(|suite| format!("deb {signed}{archive} {suite} main\n")).collect();
        let list = folder.join("sources.list");
        fs::write(&list, sources).map_err(|source| VmError::File { path: list.clone(), source })?;
        let mut options = Vec::new();
        for (option, value) in [
            ("Dir::Etc::sourcelist", list.as_os_str()),
            ("Dir::Etc::sourceparts", "/dev/null".as_ref()),
            ("Dir::State::lists", folder.join("lists").as_os_str()),
            ("Dir::Cache", folder.join("cache").as_os_str()),
            ("Debug::NoLocking", "true".as_ref()),
            ("Acquire::Languages", "none".as_ref()),
            ("Acquire::IndexTargets::deb::DEP-11::DefaultEnabled", "false".as_ref()),
            ("Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled", "false".as_ref()),
            // apt's own user cannot write to a folder in a home
            ("APT::Sandbox::User", "".as_ref()),
        ] {
            let mut word = OsString::from(option);
            word.push("=");
            word.push(value);
            options.extend(["-o".into(), word]);
        }
        let apt = Self { folder: folder.to_owned(), options };
        apt.run("apt-get", &["-qq", "update"])?;
        Ok(apt)
    }

    /// Downloads `packages` and their dependencies, except those installed on this machine (unless older than
    /// in `release`); returns the files.
    pub(crate) fn fetch_what_is_not_installed(
        &self,
        release: &str,
        packages: &[&str],
    ) -> Result<Vec<PathBuf>, VmError> {
        let switches = ["-qq", "-y", "install", "--no-install-recommends", "--download-only", "-t", release];
        self.run("apt-get", &[&switches, packages].concat())?;
        let archives = self.folder.join("cache/archives");
        let unreadable = |source| VmError::File { path: archives.clone(), source };
        let mut files = Vec::new();
        for entry in fs::read_dir(&archives).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            files.extend(path.extension().is_some_and(|kind| kind == "deb").then_some(path));
        }
        Ok(files)
    }

    /// Whether the archive has a package of this name.
    pub(crate) fn has(&self, package: &str) -> Result<bool, VmError> {
        self.run("apt-cache", &["madison", package]).map(|versions| !versions.trim().is_empty())
    }

    /// The package and all its dependencies, by name, ignoring installed packages.
    pub(crate) fn with_dependencies(&self, package: &str) -> Result<Vec<String>, VmError> {
        let listed = self.run("apt-cache", &["depends", "--recurse", "--important", package])?;
        let names = listed.lines().filter(|line| !line.starts_with([' ', '<', '|']));
        Ok(names.map(str::to_owned).collect())
    }

    /// Downloads packages into `folder`; returns the files.
    pub(crate) fn download(&self, packages: &[String], folder: &Path) -> Result<Vec<PathBuf>, VmError> {
        let unusable = |source| VmError::File { path: folder.to_owned(), source };
        fs::create_dir_all(folder).map_err(unusable)?;
        let mut command = Command::new("apt-get");
        command.current_dir(folder).args(&self.options).args(["-qq", "download"]).args(packages);
        output_of(command)?;
        let entries = fs::read_dir(folder).map_err(unusable)?;
        entries.map(|entry| entry.map(|entry| entry.path()).map_err(unusable)).collect()
    }

    fn run(&self, program: &str, words: &[&str]) -> Result<String, VmError> {
        let mut command = Command::new(program);
        command.args(&self.options).args(words);
        let said = output_of(command)?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

/// This machine's release of Debian and the archive that its apt takes it from.
pub(crate) fn debian() -> Result<(String, String), VmError> {
    let no_archive = |reason: &str| VmError::NoArchive { reason: reason.to_owned() };
    if std::env::consts::ARCH != "x86_64" {
        return Err(no_archive("the virtual machine needs an x86-64 host"));
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        release
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .map(|text| text.trim_matches('"'))
    };
    let codename = match (field("ID"), field("VERSION_CODENAME")) {
        (Some("debian"), Some(codename)) => codename.to_owned(),
        _ => return Err(no_archive("this machine does not run Debian, by /etc/os-release")),
    };
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"]);
    let targets = String::from_utf8_lossy(&output_of(command)?).into_owned();
    let archive = targets.lines().find_map(|line| line.strip_prefix(&codename)?.strip_prefix(' '));
    let archive = archive.ok_or_else(|| no_archive(&format!("apt has no source for {codename}")))?;
    Ok((codename, archive.to_owned()))
}

/// Unpacks a package's files into `folder`; its scripts do not run.
pub(crate) fn unpack(package: &Path, folder: &Path) -> Result<(), VmError> {
    let mut command = Command::new("dpkg-deb");
    command.arg("-x").arg(package).arg(folder);
    output_of(command).map(drop)
}

/// Runs a program to its end and returns its standard output.
pub(crate) fn output_of(mut command: Command) -> Result<Vec<u8>, VmError> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
    let output = command.output().map_err(|source| VmError::Start { program: program.clone(), source })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let from = said.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    let said = if said.is_empty() { output.status.to_string() } else { said[from..].to_owned() };
    Err(VmError::Failed { program, said })
}
