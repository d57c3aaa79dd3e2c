//! Where the demo speaks: a terminal, on which the live table is drawn over itself, or a file, which
//! gets a line now and then. What it changed about the terminal it puts back when dropped.

use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use cleave_io::config;

use super::view::DemoFrame;
use crate::style::Style;

pub(super) struct DemoScreen {
    out: Box<dyn Write + Send>,
    style: Style,
    is_terminal: bool,
    /// Lines of the live table above the cursor.
    lines: usize,
}

impl DemoScreen {
    pub(super) fn stdout() -> Self {
        let out = io::stdout();
        let named = |name: &str| config::environment().find(|it| it.0 == name).map(|it| it.1);
        let is_terminal = out.is_terminal() && named("TERM").is_none_or(|term| term != "dumb");
        let style = Style::of(is_terminal, named("NO_COLOR").as_deref());
        Self { out: Box::new(out), style, is_terminal, lines: 0 }
    }

    /// Shows nothing.
    #[cfg(test)]
    pub(super) fn nowhere() -> Self {
        Self { out: Box::new(io::sink()), style: Style::Plain, is_terminal: false, lines: 0 }
    }

    /// Says how often it wants to see a frame.
    pub(super) fn interval(&self) -> Duration {
        if self.is_terminal { Duration::from_millis(250) } else { Duration::from_secs(5) }
    }

    pub(super) fn say(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }

    /// Names a phase where its name is not above every frame.
    pub(super) fn begin(&mut self, title: &str) -> io::Result<()> {
        if self.is_terminal { Ok(()) } else { self.say(title) }
    }

    /// Shows one moment of a phase.
    pub(super) fn show(&mut self, frame: &DemoFrame<'_>) -> io::Result<()> {
        if self.is_terminal { self.redraw(frame) } else { self.say(&frame.line()) }
    }

    /// Shows the last moment of a phase, which stays.
    pub(super) fn leave(&mut self, frame: &DemoFrame<'_>) -> io::Result<()> {
        if self.is_terminal {
            self.redraw(frame)?;
            self.restore()?;
            return self.say("");
        }
        self.say(&frame.table(self.style))
    }

    fn redraw(&mut self, frame: &DemoFrame<'_>) -> io::Result<()> {
        let text = frame.draw(self.style);
        // Hidden cursor, no wrapping: a narrow window cuts lines instead of tearing the table.
        write!(self.out, "\x1b[?25l\x1b[?7l\r")?;
        if 0 < self.lines {
            write!(self.out, "\x1b[{}A", self.lines)?;
        }
        // Whatever was typed below the table goes.
        write!(self.out, "{}\x1b[J", text.replace('\n', "\x1b[K\n"))?;
        self.lines = text.lines().count();
        self.out.flush()
    }

    /// Lets what was drawn stand, and the terminal be as it was.
    fn restore(&mut self) -> io::Result<()> {
        if 0 < self.lines {
            self.lines = 0;
            self.out.write_all(b"\x1b[?7h\x1b[?25h")?;
            self.out.flush()?;
        }
        Ok(())
    }
}

impl fmt::Debug for DemoScreen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").field("is_terminal", &self.is_terminal).finish_non_exhaustive()
    }
}

impl Drop for DemoScreen {
    fn drop(&mut self) {
        // A terminal that takes no more bytes has nothing to be put back.
        _ = self.restore();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::demo::fleet::Busy;
    use crate::demo::tally::Tallies;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Shows a frame twice, leaves it, and returns what was written.
    fn written(is_terminal: bool) -> String {
        let paper = Paper::default();
        let out = Box::new(paper.clone());
        let mut screen = DemoScreen { out, style: Style::Plain, is_terminal, lines: 0 };
        let (busy, tallies) = ([Busy::default(); 2], Tallies::new(2));
        let time = Duration::from_secs(1);
        let frame = DemoFrame {
            title: "title",
            is_arriving: false,
            elapsed: time,
            length: time,
            busy: &busy,
            tallies: &tallies,
        };
        screen.begin("title").unwrap();
        screen.show(&frame).unwrap();
        screen.show(&frame).unwrap();
        screen.leave(&frame).unwrap();
        String::from_utf8(paper.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_terminal_is_drawn_over_and_put_back() {
        let text = written(true);
        // Title, header, two replicas and the sum.
        assert_eq!(text.matches("\x1b[5A").count(), 2);
        assert!(text.ends_with("\x1b[?7h\x1b[?25h\n"), "{text:?}");
    }

    #[test]
    fn a_file_gets_lines_and_at_the_end_the_table_without_escapes() {
        let text = written(false);
        assert!(!text.contains('\x1b'));
        assert_eq!(text.lines().filter(|it| it.contains(" s  in flight")).count(), 2);
        assert_eq!(text.lines().filter(|it| it.starts_with("replica")).count(), 2);
    }
}
