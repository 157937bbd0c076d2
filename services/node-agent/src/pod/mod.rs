//! Pods bound to our nodes: what a pod asks for (`intent`), what surrounds its process (`environment`, `content`,
//! `volumes`, `filling`), what is done about it (`decide`, pure), and the worker that does it.

pub mod container;
pub mod content;
pub mod decide;
pub mod environment;
pub mod filling;
pub mod index;
pub mod intent;
pub mod probe;
pub mod prober;
pub mod record;
pub mod simulate;
pub mod start;
pub mod status;
pub mod translate;
pub mod volumes;
pub mod worker;
pub mod writer;
