//! The terminal of `forebay top`.
//!
//! However the program ends (a key, SIGTERM, SIGINT, SIGHUP, a panic), the terminal gets its modes, its screen and its
//! cursor back. SIGKILL alone leaves it as it is; `reset` repairs that.

use std::io::{self, IsTerminal, Stdout, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Once;

use parking_lot::Mutex;
use ratatui::Terminal;
use ratatui::backend::TermionBackend;
use ratatui::termion::event::Key as Pressed;
use ratatui::termion::input::TermRead;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::app::{App, Key};
use super::{Seen, ask, draw};
use crate::live::INTERVAL;

/// The other screen, empty and without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H";

/// The screen and the cursor from before, and no attributes.
const LEAVE: &str = "\x1b[0m\x1b[?1049l\x1b[?25h";

/// The modes of the terminal from before, while it is in use.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Shows the gateway that uses `data_dir` until the user or a signal ends it.
///
/// # Errors
/// Input and output are no terminal, or it cannot be used.
pub async fn run(data_dir: &Path) -> Result<(), String> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(
            "forebay top needs a terminal; --once prints one picture, --once --json the values"
                .to_owned(),
        );
    }
    let signals = Signals::new().map_err(|error| error.to_string())?;
    let screen = Screen::enter().map_err(|error| format!("cannot use the terminal: {error}"))?;
    let shown = show(data_dir, signals).await;
    drop(screen);
    shown.map_err(|error| format!("cannot use the terminal: {error}"))
}

/// Columns and lines of the terminal that the output is, if it is one.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

struct Signals {
    resize: Signal,
    end: [Signal; 3],
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            resize: signal(SignalKind::window_change())?,
            end: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
                signal(SignalKind::hangup())?,
            ],
        })
    }
}

/// Waits for answers, keys and signals, and draws after each.
async fn show(data_dir: &Path, signals: Signals) -> io::Result<()> {
    let Signals {
        mut resize,
        end: [mut terminate, mut interrupt, mut hangup],
    } = signals;
    let mut terminal: Terminal<TermionBackend<Stdout>> =
        Terminal::new(TermionBackend::new(io::stdout()))?;
    let mut keys = read_keys();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asking: JoinSet<Result<Seen, String>> = JoinSet::new();
    let mut app = App::default();
    loop {
        terminal.draw(|frame| {
            let area = frame.area();
            draw::draw(&app, area, frame.buffer_mut());
        })?;
        tokio::select! {
            _ = ticks.tick() => {
                // A gateway that does not answer is asked once at a time.
                if asking.is_empty() {
                    let (data_dir, after) = (data_dir.to_owned(), app.last());
                    asking.spawn(async move {
                        ask(&data_dir, after).await.map_err(|error| error.to_string())
                    });
                }
            }
            Some(answer) = asking.join_next() => {
                app.take(answer.unwrap_or_else(|error| Err(error.to_string())));
            }
            key = keys.recv() => match key {
                Some(Input::Key(key)) => {
                    if app.press(key) == ControlFlow::Break(()) {
                        return Ok(());
                    }
                }
                // Ctrl-C, or the terminal is gone.
                Some(Input::End) | None => return Ok(()),
            },
            _ = resize.recv() => {}
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
        }
    }
}

enum Input {
    Key(Key),
    End,
}

/// Reads keys in a thread, which ends with the process: nothing wakes a thread that waits for a terminal.
fn read_keys() -> mpsc::Receiver<Input> {
    let (sender, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        for key in io::stdin().keys() {
            let input = match key {
                Ok(Pressed::Ctrl('c')) => Input::End,
                Ok(pressed) => match meant(pressed) {
                    Some(key) => Input::Key(key),
                    None => continue,
                },
                Err(_) => return,
            };
            if sender.blocking_send(input).is_err() {
                return;
            }
        }
    });
    keys
}

fn meant(pressed: Pressed) -> Option<Key> {
    Some(match pressed {
        Pressed::Char('\t') => Key::Tab,
        Pressed::Char(character) => Key::Character(character),
        Pressed::BackTab => Key::BackTab,
        Pressed::Up => Key::Up,
        Pressed::Down => Key::Down,
        Pressed::Left => Key::Left,
        Pressed::Right => Key::Right,
        Pressed::PageUp => Key::PageUp,
        Pressed::PageDown => Key::PageDown,
        Pressed::Home => Key::Home,
        Pressed::End => Key::End,
        Pressed::Esc => Key::Escape,
        _ => return None,
    })
}

/// The terminal while it is in use; dropping it restores the terminal.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Screen> {
        let before = tcgetattr(io::stdout())?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock() = Some(before);
        restore_on_panic();
        let screen = Screen;
        tcsetattr(io::stdout(), OptionalActions::Flush, &raw)?;
        write(ENTER)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back as it was; once.
fn restore() {
    if let Some(before) = BEFORE.lock().take() {
        // There is nothing to be done about a terminal that is gone.
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdout(), OptionalActions::Flush, &before);
    }
}

/// Restores the terminal before the message of a panic, which would be lost with the other screen.
fn restore_on_panic() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            print(panic);
        }));
    });
}

fn write(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::ffi::OsStringExt;
    use std::process::{Command, Stdio};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::LocalModes;

    use super::*;

    /// Set for the process that panics at a terminal.
    const PANICS: &str = "TOP_PANICS";

    /// A terminal: the end of the user, and that of a program.
    fn terminal() -> (File, File) {
        let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&user).unwrap();
        unlockpt(&user).unwrap();
        let name = ptsname(&user, Vec::new()).unwrap().into_bytes();
        let options = File::options().read(true).write(true).clone();
        let program = options.open(OsString::from_vec(name)).unwrap();
        (user.into(), program)
    }

    fn modes(terminal: &File) -> LocalModes {
        tcgetattr(terminal).unwrap().local_modes
    }

    /// The part of the next test that is a process of its own.
    #[test]
    fn panics_at_its_terminal() {
        if std::env::var_os(PANICS).is_none() {
            return;
        }
        let screen = Screen::enter().unwrap();
        let lines = LocalModes::ICANON | LocalModes::ECHO;
        let is_raw = !tcgetattr(io::stdout())
            .unwrap()
            .local_modes
            .intersects(lines);
        // Nothing else restores it: the stack may be that of another thread.
        std::mem::forget(screen);
        panic!("raw: {is_raw}");
    }

    #[test]
    fn a_panic_gives_the_terminal_back_before_its_message() {
        let (mut user, program) = terminal();
        let before = modes(&program);
        assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "--nocapture"])
            .arg("top::screen::tests::panics_at_its_terminal")
            .env(PANICS, "")
            .stdin(Stdio::null())
            .stdout(program.try_clone().unwrap())
            .stderr(program.try_clone().unwrap());
        let mut child = command.spawn().unwrap();
        // Its ends of the terminal.
        drop(command);
        let reader = std::thread::spawn(move || {
            let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
            // The end of a terminal is an error.
            while let Ok(len @ 1..) = user.read(&mut piece) {
                seen.extend_from_slice(&piece[..len]);
            }
            String::from_utf8_lossy(&seen).into_owned()
        });
        assert!(!child.wait().unwrap().success());
        assert_eq!(modes(&program), before);
        drop(program);
        let seen = reader.join().unwrap();
        let at = |part: &str| {
            seen.find(part)
                .unwrap_or_else(|| panic!("{part:?}: {seen:?}"))
        };
        assert!(at(ENTER) < at(LEAVE), "{seen:?}");
        assert!(at(LEAVE) < at("raw: true"), "{seen:?}");
    }
}
