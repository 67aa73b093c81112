//! The only module that differs between operating systems: how long a process of this machine ran and how long it
//! waited for a processor. Elsewhere, and for servers on other machines, nobody knows.

/// Seconds a process has run, and seconds it was ready to run while every processor was taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CpuTimes {
    pub ran: f64,
    pub queued: f64,
}

/// Times of a process of this machine, from /proc/PID/schedstat (Linux, Documentation/scheduler/sched-stats).
#[cfg(target_os = "linux")]
pub(crate) fn cpu_times(pid: i32) -> Option<CpuTimes> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let mut fields = text.split_ascii_whitespace().map_while(|field| field.parse::<u64>().ok());
    let (ran, queued) = (fields.next()?, fields.next()?);
    #[allow(clippy::cast_precision_loss)] // nanoseconds: 52 bits of them are 52 days
    Some(CpuTimes { ran: ran as f64 / 1e9, queued: queued as f64 / 1e9 })
}

/// Other systems do not tell.
#[cfg(not(target_os = "linux"))]
pub(crate) fn cpu_times(_pid: i32) -> Option<CpuTimes> {
    None
}

/// Whether this process of this machine is the backend of `role` in `database`. A server that runs elsewhere may
/// have a backend of the same number as some process here: PostgreSQL sets its title to `postgres: role database
/// host ...` (ps_status.c, init_ps_display), with the cluster's name in front where it has one.
#[cfg(target_os = "linux")]
pub(crate) fn is_backend(pid: i32, role: &str, database: &str) -> bool {
    let Ok(title) = std::fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let title = String::from_utf8_lossy(&title);
    title.starts_with("postgres: ") && title.contains(&format!(" {role} {database} "))
}

/// Other systems do not tell.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_backend(_pid: i32, _role: &str, _database: &str) -> bool {
    false
}
