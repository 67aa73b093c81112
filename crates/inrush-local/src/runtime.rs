use inrush_core::{Code, Error, Result};

/// Runs a future to its end, on a thread of its own: the caller may be inside a runtime, where tokio lets
/// nobody block on another one.
pub(crate) fn block_on<T: Send, F: Future<Output = T>>(make: impl FnOnce() -> F + Send) -> Result<T> {
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| Error::new(Code::Local, format!("no runtime to wait with: {error}")))?;
        Ok(runtime.block_on(make()))
    };
    std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn works_inside_a_runtime() {
        let outer = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let inner = outer.block_on(async { super::block_on(|| async { 42 }) });
        assert_eq!(inner.unwrap(), 42);
    }
}
