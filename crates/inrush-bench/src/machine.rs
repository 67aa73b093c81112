//! What only Linux tells, from /proc. Everything here is `None` elsewhere, and then reported as not measured.

use std::fs;
use std::path::Path;
use std::process::Command;

/// CPU seconds of all processes of a server: the postmaster, those it has waited for, and those alive.
pub fn server_cpu(postmaster: u32) -> Option<f64> {
    let mut now = Stat::of(postmaster)?;
    loop {
        let mut children = 0;
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(stat) = pid.and_then(Stat::of)
                && stat.parent == postmaster
            {
                children += stat.own;
            }
        }
        // A process that was waited for meanwhile would be missing, or be counted twice.
        let before = std::mem::replace(&mut now, Stat::of(postmaster)?);
        if before.waited_for == now.waited_for {
            return Some(seconds(now.own + now.waited_for + children));
        }
    }
}

/// The processes that a process has started, and that live.
pub fn children_of(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| Stat::of(*pid).is_some_and(|stat| stat.parent == parent))
        .collect()
}

/// CPU seconds of one process so far, without its children.
pub fn process_cpu(pid: u32) -> Option<f64> {
    Some(seconds(Stat::of(pid)?.own))
}

/// The most memory that a process has had, in bytes.
pub fn process_peak(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// CPU seconds that the machine was busy since it started, on all its cores.
pub fn busy() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guests are part of user (proc(5)).
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = *ticks.first_chunk()?;
    Some(seconds(user + nice + system + irq + softirq + steal))
}

/// The load average of the last minute.
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The model of the processor.
pub fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Bytes of memory.
pub fn memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// The file system that holds a path, and its device: a figure from memory is no figure.
pub fn file_system(path: &Path) -> Option<String> {
    let output = Command::new("df").args(["--output=fstype,source"]).arg(path).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().nth(1)?.split_whitespace().collect::<Vec<_>>().join(" on "))
}

/// The postmaster of a server, from one of its backends, if that runs on this machine.
pub fn postmaster_of(backend: u32) -> Option<u32> {
    let name = fs::read_to_string(format!("/proc/{backend}/comm")).ok()?;
    (name.trim() == "postgres").then_some(Stat::of(backend)?.parent)
}

#[allow(clippy::cast_precision_loss)] // ticks of years fit
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Of /proc/PID/stat.
struct Stat {
    parent: u32,
    /// Ticks of the process.
    own: u64,
    /// Ticks of its children that have ended and been waited for, and of theirs.
    waited_for: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The second field is the program's name in parentheses, which may itself hold blanks and parentheses.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        // Field n of proc(5) is at n - 3.
        let number = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
        Some(Stat {
            parent: u32::try_from(number(4)?).ok()?,
            own: number(14)? + number(15)?,
            waited_for: number(16)? + number(17)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line_of_stat() {
        let line = "77 (a) b (c) S 5 77 77 0 -1 4194560 900 2000 0 0 11 22 33 44 20 0 1 0 100 0 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.parent, stat.own, stat.waited_for), (5, 33, 77));
        assert!(Stat::parse("77 (a").is_none());
    }
}
