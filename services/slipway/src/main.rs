//! The program `slipway`: reads its command line and leaves the rest to the library. It never decides anything itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    slipway::main()
}
