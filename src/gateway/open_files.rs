//! The limit of open files: each connection is one.

/// Raises the limit of open files as far as the system allows: each connection is one. Returns the new limit, if
/// there is one.
pub(super) fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limits.maximum,
        Err(error) => {
            tracing::debug!(
                "the limit of open files stays at {:?}: {error}",
                limits.current
            );
            limits.current
        }
    }
}

/// Open files that are reserved for everything but connections of clients: the log, the disk cache (at most 256
/// files), requests to the bucket, a bucket in a folder, the control socket, and connections of strangers.
const OTHER_FILES: u64 = 512;

/// The wanted number of connections, or fewer, so that enough open files remain for everything else: half of the
/// limit if that is low.
pub(super) fn allowed_connections(wanted: u32, open_files: Option<u64>) -> u32 {
    let Some(files) = open_files else {
        return wanted;
    };
    let allowed = files.saturating_sub(OTHER_FILES).max(files / 2).max(1);
    wanted.min(u32::try_from(allowed).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_open_files_for_all_else() {
        assert_eq!(allowed_connections(16_384, None), 16_384);
        assert_eq!(allowed_connections(16_384, Some(1 << 20)), 16_384);
        assert_eq!(allowed_connections(16_384, Some(4096)), 3584);
        assert_eq!(allowed_connections(1000, Some(4096)), 1000);
        assert_eq!(allowed_connections(16_384, Some(256)), 128);
        assert_eq!(allowed_connections(16_384, Some(0)), 1);
    }
}
