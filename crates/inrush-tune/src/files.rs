//! The files of relations, and how much of them the operating system keeps in memory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The files of a relation whose first one is `path`: segments of the main fork, visibility map and free
/// space map.
///
/// # Errors
/// If the first one cannot be opened.
pub fn of(path: &Path) -> io::Result<Vec<PathBuf>> {
    File::open(path)?;
    let mut files = Vec::new();
    for fork in ["", "_vm", "_fsm"] {
        let first = with_suffix(path, fork);
        if !first.exists() {
            continue;
        }
        files.push(first.clone());
        let segments = (1..).map(|n| with_suffix(&first, &format!(".{n}")));
        files.extend(segments.take_while(|segment| segment.exists()));
    }
    Ok(files)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Has the kernel write what it has not written of a file.
///
/// # Errors
/// What the operating system says.
pub fn flush(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_data()
}

/// Has the kernel write what it has not written of a file, and forget its pages. The kernel may keep some:
/// look with [`resident`]. It does nothing for an account that does not own the file.
///
/// # Errors
/// What the operating system says.
#[cfg(target_os = "linux")]
pub fn forget(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // Pages that wait to be written are not forgotten.
    file.sync_data()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

/// Pages of a file that are in the kernel's cache, and its pages in all. The kernel calls every page resident
/// for an account that neither owns nor may write the file (mm/mincore.c, can_do_mincore): too much is never called cold.
///
/// # Errors
/// What the operating system says.
#[cfg(target_os = "linux")]
pub fn resident(path: &Path) -> io::Result<(u64, u64)> {
    resident_of(&File::open(path)?)
}

/// The same of a file that is open.
///
/// # Errors
/// What the operating system says.
#[cfg(target_os = "linux")]
pub fn resident_of(file: &File) -> io::Result<(u64, u64)> {
    use rustix::mm::{MapFlags, ProtFlags};
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    if length == 0 {
        return Ok((0, 0));
    }
    let mut flags = vec![0_u8; length.div_ceil(rustix::param::page_size())];
    // SAFETY: a new mapping at an address of the kernel's choice, of a file that is open, and never read
    // from: that the file may become shorter meanwhile does not matter.
    let address = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0)?
    };
    // SAFETY: the mapping is of `length` bytes, and `flags` has a byte for each of its pages.
    let looked = unsafe { libc::mincore(address, length, flags.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: the mapping made above, which nothing refers to.
    let unmapped = unsafe { rustix::mm::munmap(address, length) };
    if looked != 0 {
        return Err(error);
    }
    unmapped?;
    // Only the lowest bit means something (mincore(2)).
    let resident = flags.iter().filter(|flag| **flag & 1 == 1).count();
    Ok((resident as u64, flags.len() as u64))
}

/// Not done here.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn forget(_path: &Path) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Not known here.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn resident(_path: &Path) -> io::Result<(u64, u64)> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// The share of pages that the kernel has in its cache, of the files of relations below a tablespace's directory; `None`
/// where the account may not tell, or there are hardly any. It looks at as much as it takes to know.
#[cfg(target_os = "linux")]
pub fn cached_share(tablespace: &Path) -> Option<f64> {
    use std::os::unix::fs::MetadataExt;
    /// Pages that tell: 16 GiB.
    const ENOUGH: u64 = 4 << 20;
    /// Fewer say nothing: 64 MiB.
    const FEW: u64 = 16 << 10;
    let account = rustix::process::geteuid();
    let (mut some, mut all) = (0, 0);
    let databases = fs::read_dir(tablespace).ok()?.flatten();
    let files = databases.filter_map(|entry| fs::read_dir(entry.path()).ok()).flat_map(Iterator::flatten);
    for file in files {
        // Of files of others every page is called resident.
        let owned = file.metadata().is_ok_and(|data| account.is_root() || data.uid() == account.as_raw());
        let relation = file.file_name().to_string_lossy().starts_with(|first: char| first.is_ascii_digit());
        if let Some((resident, pages)) = (owned && relation).then(|| resident(&file.path()).ok()).flatten() {
            some += resident;
            all += pages;
        }
        if all >= ENOUGH {
            break;
        }
    }
    #[allow(clippy::cast_precision_loss)] // pages
    (all >= FEW).then(|| some as f64 / all as f64)
}

/// Not known here.
#[cfg(not(target_os = "linux"))]
pub fn cached_share(_tablespace: &Path) -> Option<f64> {
    None
}

/// Bytes of files, as far as they are there.
pub fn bytes(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|file| fs::metadata(file).ok()).map(|metadata| metadata.len()).sum()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Write;

    /// Beside the test program, which is on a disk: what is on a file system in memory is always resident.
    fn directory() -> PathBuf {
        let program = std::env::current_exe().expect("a program");
        let path = program.parent().expect("a directory").join(format!("files-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        path
    }

    #[test]
    fn a_file_is_resident_until_it_is_forgotten() {
        let directory = directory();
        let path = directory.join("16384");
        let mut file = File::create(&path).expect("a file");
        file.write_all(&vec![7; 1 << 20]).expect("to write");
        drop(file);
        fs::write(with_suffix(&path, ".1"), [1]).expect("to write");
        fs::write(with_suffix(&path, "_vm"), [1]).expect("to write");
        fs::write(with_suffix(&path, ".3"), [1]).expect("to write");
        let names: Vec<String> = of(&path)
            .expect("files")
            .iter()
            .map(|file| file.file_name().expect("a name").to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["16384", "16384.1", "16384_vm"]);
        assert!(of(&directory.join("no")).is_err());
        assert_eq!(resident(&path).expect("mincore"), (256, 256));
        forget(&path).expect("fadvise");
        let (left, all) = resident(&path).expect("mincore");
        assert!(all == 256 && left < 3, "{left}");
        fs::remove_dir_all(&directory).expect("to clean up");
    }
}
