//! Prints the custom resource definition, as committed in `deploy/crds/questdb.yaml`.

use std::io::Write as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = serde_saphyr::to_string(&resources::definition())?;
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    Ok(())
}
