//! Libraries that a gateway loads before all others (`LD_PRELOAD`): they make calls of the system slow.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::{Place, TIMEOUT};

/// The head of each library.
const HEAD: &str = "#include <fcntl.h>\n#include <stdarg.h>\n#include <string.h>\n#include <unistd.h>\n\
                    #include <sys/stat.h>\n#include <sys/syscall.h>\n";

fn library(place: &Place, name: &str, text: &str) -> String {
    let (source, library) = (
        place.path(&format!("{name}.c")),
        place.path(&format!("{name}.so")),
    );
    fs::write(&source, format!("{HEAD}{text}")).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    assert!(built.unwrap().success(), "cc");
    library.display().to_string()
}

/// By this library each flush of a mapped file takes this much longer.
pub(crate) fn slow_flushes(place: &Place, milliseconds: u32) -> String {
    let text = format!(
        "int msync(void *address, size_t length, int flags) {{\n\
             usleep({milliseconds} * 1000);\n\
             return syscall(SYS_msync, address, length, flags);\n}}\n"
    );
    library(place, "slow", &text)
}

/// A bucket, the folder of a place, whose packs can be read, or written, only while it is not held.
pub(crate) struct HeldPacks {
    /// For `LD_PRELOAD`.
    pub(crate) library: String,
    /// There while packs are held.
    hold: PathBuf,
    /// There since somebody waits for a pack.
    waiting: PathBuf,
}

impl HeldPacks {
    /// Makes the library; reads of packs are held from now on.
    pub(crate) fn reads(place: &Place) -> HeldPacks {
        HeldPacks::hold(place, "==")
    }

    /// The same for new packs.
    pub(crate) fn writes(place: &Place) -> HeldPacks {
        HeldPacks::hold(place, "!=")
    }

    fn hold(place: &Place, compared: &str) -> HeldPacks {
        let (hold, waiting) = (place.path("hold"), place.path("waiting"));
        let text = format!(
            "int open64(const char *path, int flags, ...) {{\n\
                 va_list more;\n\
                 va_start(more, flags);\n\
                 int mode = flags & O_CREAT ? va_arg(more, int) : 0;\n\
                 va_end(more);\n\
                 struct stat it;\n\
                 /* A new pack is flushed with its folder, which is opened for reading. */\n\
                 int is_folder = stat(path, &it) == 0 && S_ISDIR(it.st_mode);\n\
                 int held = strstr(path, \"/packs/\") && !is_folder && (flags & O_ACCMODE) {compared} O_RDONLY;\n\
                 while (held && access({hold:?}, F_OK) == 0) {{\n\
                     close(syscall(SYS_openat, AT_FDCWD, {waiting:?}, O_WRONLY | O_CREAT, 0600));\n\
                     usleep(1000);\n\
                 }}\n\
                 return syscall(SYS_openat, AT_FDCWD, path, flags, mode);\n}}\n"
        );
        fs::write(&hold, b"").unwrap();
        HeldPacks {
            library: library(place, "hold", &text),
            hold,
            waiting,
        }
    }

    /// Waits until one is held.
    #[track_caller]
    pub(crate) fn wait(&self) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.waiting.exists() {
            assert!(Instant::now() < deadline, "no pack is asked for");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets all of them go on.
    pub(crate) fn release(&self) {
        fs::remove_file(&self.hold).unwrap();
    }
}
