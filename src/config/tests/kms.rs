//! Valid and invalid combinations of the credentials that open a sealed volume.

use super::*;

const SEALED: &str = "encryption = \"aes-256-gcm\"\n";
const KEY: &str = "kms_key = \"alias/k\"\n";

#[test]
fn a_key_of_kms_may_be_named_with_its_place() {
    let text =
        format!("{SEALED}{KEY}kms_region = \"eu-central-1\"\nkms_endpoint = \"https://kms\"");
    let config = Places::new().system_file(&text).load();
    assert_eq!(config.kms_key.0.as_deref(), Some("alias/k"));
    assert_eq!(config.kms_region.0.as_deref(), Some("eu-central-1"));
    assert_eq!(config.kms_endpoint.0.as_deref(), Some("https://kms"));
    let config = Places::new().load();
    assert_eq!(config.kms_key.0, None);
    assert_eq!(config.kms_region.0, None);
    assert_eq!(config.kms_endpoint.0, None);
}

#[test]
fn only_one_thing_opens_a_volume() {
    let error = |text: &str| Places::new().system_file(text).error();
    assert_eq!(
        error(KEY),
        "kms_key = alias/k (system.toml:1) has no effect with encryption = off: set that to aes-256-gcm, or leave the key out"
    );
    for file in ["passphrase_file", "key_file"] {
        assert_eq!(
            error(&format!("{SEALED}{KEY}{file} = \"/f\"")),
            format!(
                "kms_key = alias/k (system.toml:2) and {file} are both set: leave one of them out"
            )
        );
    }
}

#[test]
fn a_place_without_a_key_of_kms_is_refused() {
    for (setting, value) in [
        ("kms_region", "eu-central-1"),
        ("kms_endpoint", "https://k"),
    ] {
        let text = format!("{SEALED}passphrase_file = \"/f\"\n{setting} = \"{value}\"");
        assert_eq!(
            Places::new().system_file(&text).error(),
            format!(
                "{setting} = {value} (system.toml:3) has no effect without kms_key: set that, or leave this out"
            )
        );
    }
}
