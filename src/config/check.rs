//! Rules that involve several settings.

use std::time::Duration;

use forebay_fs::MIN_DISK_CACHE;

use super::{Config, ConfigError, Encryption, LogMode, Sealing, Size, Source};

impl Config {
    /// Checks the rules that involve several values.
    pub(super) fn check(&self, errors: &mut Vec<ConfigError>) {
        let mut conflict = |key: &'static str, problem: String| {
            errors.push(ConfigError::Conflict {
                key,
                value: self
                    .written(key)
                    .map(|value| value.to_string())
                    .unwrap_or_default(),
                place: self.source(key),
                problem,
            });
        };

        // A volume without a log needs neither segments nor space for them.
        if self.log == LogMode::Disk {
            // One segment is written, one is prepared, and one at each end is partly free.
            let least = self.log_segment.times(4);
            if self.log_limit < least {
                let segment = self.described("log_segment");
                conflict(
                    "log_limit",
                    format!("must be at least {least}, four times {segment}"),
                );
            }
            // Otherwise the log would be full before its first checkpoint closes.
            let least = self.checkpoint_bytes.times(2);
            if self.log_limit < least {
                let bytes = self.described("checkpoint_bytes");
                conflict(
                    "log_limit",
                    format!("must be at least {least}, twice {bytes}"),
                );
            }
        }

        // A certificate is useless without its key, and vice versa.
        for (key, other) in [
            ("tls_certificate", "tls_key"),
            ("tls_key", "tls_certificate"),
            ("admin_tls_certificate", "admin_tls_key"),
            ("admin_tls_key", "admin_tls_certificate"),
        ] {
            if self.is_file(key) && !self.is_file(other) {
                conflict(key, format!("needs {other}: set both, or neither"));
            }
        }
        if self.is_file("tls_client_ca") && !self.is_file("tls_certificate") {
            let problem = "needs TLS: set tls_certificate and tls_key as well, or leave it out";
            conflict("tls_client_ca", problem.to_owned());
        }

        if let Some(address) = self.admin_listen.0
            && !address.ip().to_canonical().is_loopback()
            && !self.is_file("admin_tls_certificate")
        {
            let port = address.port();
            let problem = format!(
                "can be reached from other machines, and needs TLS: set admin_tls_certificate and admin_tls_key, or \
                 listen on 127.0.0.1:{port} and connect with `ssh -L {port}:127.0.0.1:{port}`"
            );
            conflict("admin_listen", problem);
        }

        if self.otlp_endpoint.0.is_some() && !cfg!(feature = "otlp") {
            let problem = "needs a program that is built with `cargo build --release --features otlp`: build it like \
                           that, or leave this out";
            conflict("otlp_endpoint", problem.to_owned());
        }

        if self.s3_kms_key.0.is_some() && self.s3_encryption != Encryption::Kms {
            let encryption = self.described("s3_encryption");
            conflict(
                "s3_kms_key",
                format!(
                    "has no effect with {encryption}: set that to aws:kms, or leave the key out"
                ),
            );
        }

        for key in ["passphrase_file", "key_file"] {
            if self.is_file(key) && self.encryption == Sealing::Off {
                let encryption = self.described("encryption");
                conflict(
                    key,
                    format!(
                        "has no effect with {encryption}: set that to aes-256-gcm, or leave the file out"
                    ),
                );
            }
        }
        if self.seal_log.is_on() && self.encryption == Sealing::Off {
            let encryption = self.described("encryption");
            conflict(
                "seal_log",
                format!(
                    "needs the keys of a sealed volume, and the configuration has {encryption}: set that to aes-256-gcm, or this to off"
                ),
            );
        }
        let both = |other: &str| format!("and {other} are both set: leave one of them out");
        if self.is_file("passphrase_file") && self.is_file("key_file") {
            conflict("key_file", both("passphrase_file"));
        }
        if self.kms_key.0.is_some() {
            for other in ["passphrase_file", "key_file"] {
                if self.is_file(other) {
                    conflict("kms_key", both(other));
                }
            }
            if self.encryption == Sealing::Off {
                let encryption = self.described("encryption");
                conflict(
                    "kms_key",
                    format!(
                        "has no effect with {encryption}: set that to aes-256-gcm, or leave the key out"
                    ),
                );
            }
        }
        for (key, is_set) in [
            ("kms_region", self.kms_region.0.is_some()),
            ("kms_endpoint", self.kms_endpoint.0.is_some()),
        ] {
            if is_set && self.kms_key.0.is_none() {
                let problem = "has no effect without kms_key: set that, or leave this out";
                conflict(key, problem.to_owned());
            }
        }

        // One checkpoint is collecting, one or two are being uploaded, and readers need room as well.
        let least = self.checkpoint_bytes.times(4);
        if self.memory_limit < least {
            let bytes = self.described("checkpoint_bytes");
            conflict(
                "memory_limit",
                format!("must be at least {least}, four times {bytes}; raise it or lower that one"),
            );
        }

        if (1..MIN_DISK_CACHE).contains(&self.disk_cache_limit.bytes()) {
            let least = Size::from_bytes(MIN_DISK_CACHE);
            conflict(
                "disk_cache_limit",
                format!("must be 0B, for none, or at least {least}"),
            );
        }

        let hour = Duration::from_secs(3600);
        if !self.scrub_interval.is_zero() && self.scrub_interval < hour {
            conflict(
                "scrub_interval",
                "must be 0s, for never, or at least 1h: every pack is read each time".to_owned(),
            );
        }

        // Packs in flight are memory too.
        let in_flight = self.pack_bytes.times(u64::from(self.upload_parallel));
        if in_flight.times(2) > self.memory_limit {
            let packs = self.described("pack_bytes");
            let memory = self.described("memory_limit");
            conflict(
                "upload_parallel",
                format!("times {packs} is {in_flight}, and must not be more than half of {memory}"),
            );
        }
    }

    /// Whether one of these files is named.
    fn is_file(&self, key: &str) -> bool {
        let file = match key {
            "tls_certificate" => &self.tls_certificate,
            "tls_key" => &self.tls_key,
            "passphrase_file" => &self.passphrase_file,
            "key_file" => &self.key_file,
            "admin_tls_certificate" => &self.admin_tls_certificate,
            "admin_tls_key" => &self.admin_tls_key,
            _ => &self.tls_client_ca,
        };
        file.path().is_some()
    }

    /// A setting with its value and source, for use within a sentence.
    pub(crate) fn described(&self, key: &str) -> String {
        let value = self
            .written(key)
            .map(|value| value.to_string())
            .unwrap_or_default();
        match self.source(key) {
            Source::Default => format!("{key} = {value}"),
            source => format!("{key} = {value} ({source})"),
        }
    }
}

impl Size {
    /// The size times `factor`, at most the largest possible size.
    fn times(self, factor: u64) -> Size {
        Size::from_bytes(self.bytes().saturating_mul(factor))
    }
}
