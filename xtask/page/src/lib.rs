//! The page in a real browser: headless Chromium, driven through Debian's `chromedriver`.
//!
//! # Layout
//! - `driver`: the chromedriver process
//! - `browser`: one window, what it shows and what it complains of
//! - `tests/page/`: what must hold; the pictures are written to `target/page/`

mod browser;
mod driver;

pub use browser::{Browser, Scheme};
