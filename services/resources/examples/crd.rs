//! Writes the definitions of the custom resources into a folder, as committed in `deploy/crds`.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).ok_or("name the folder to write into")?;
    for (file, definition) in resources::definitions() {
        let text = serde_saphyr::to_string(&definition)?;
        std::fs::write(folder.join(file), format!("{}\n", text.trim_end()))?;
    }
    Ok(())
}
