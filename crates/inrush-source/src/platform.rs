//! The only module that differs between operating systems: positioned reads, and the hint to the kernel
//! that a file is read from front to end.

use std::fs::File;
use std::io;

/// Reads at `offset` without moving a file cursor; returns 0 at the end of the file.
#[cfg(unix)]
pub(crate) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buf, offset)
}

/// Reads at `offset`; returns 0 at the end of the file. Moves the file cursor, which nobody here uses.
#[cfg(windows)]
pub(crate) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buf, offset)
}

/// Whether opening the file gives a stream of bytes although it is no regular file.
#[cfg(unix)]
pub(crate) fn is_stream(kind: std::fs::FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    kind.is_fifo() || kind.is_char_device()
}

/// Whether opening the file gives a stream of bytes although it is no regular file.
#[cfg(not(unix))]
pub(crate) fn is_stream(_kind: std::fs::FileType) -> bool {
    false
}

/// Tells the kernel that the file will be read from front to end, which doubles its read-ahead. Advice: that
/// a file system does not take it changes nothing but the speed.
#[cfg(target_os = "linux")]
pub(crate) fn will_read_in_order(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Sequential);
}

/// Linux takes advice on how a file will be read; nothing to do elsewhere.
#[cfg(not(target_os = "linux"))]
pub(crate) fn will_read_in_order(_file: &File) {}

/// Drops `len` bytes from `offset` on from the page cache, 0 for all that follow. Advice, too.
#[cfg(target_os = "linux")]
pub(crate) fn drop_cached(file: &File, offset: u64, len: u64) {
    let len = std::num::NonZeroU64::new(len);
    let _ = rustix::fs::fadvise(file, offset, len, rustix::fs::Advice::DontNeed);
}

/// Other systems decide by themselves.
#[cfg(not(target_os = "linux"))]
pub(crate) fn drop_cached(_file: &File, _offset: u64, _len: u64) {}
