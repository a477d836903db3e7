//! The table of settings. To add one, add a row.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use forebay_fs::Levels;
use forebay_object::{LinkLimit, Proxy};

use super::Default::{Computed, Fixed};
use super::raw::{Raw, within};
use super::table::settings;
use super::{
    Access, Auto, Checksum, Clients, CommitMode, Compression, ConfigError, Dedup, Encryption,
    Endpoint, Export, KmsKey, LogLevel, LogMode, MaybeFile, Region, Restore, Sealing, Security,
    Setting, Size, Source, SourcePort, Squash, StorageClass, StoreUrl, Switch, Tags, Takeover,
    Value, Written, Xprtsec, exports,
};

settings! {
    "Volume" {
        /// Where the volume lives: `s3://BUCKET/PREFIX`, or a local folder as `file:///PATH`.
        /// Credentials, region and endpoint of S3 come from the standard `AWS_*` variables and
        /// profiles.
        store: StoreUrl = Computed("file://<data_dir>/bucket");
        /// Local folder for the log and for the state that the gateway needs after a restart. One
        /// gateway at a time uses it, and no other user may read it: a start removes permissions of other users.
        data_dir: PathBuf = Computed(
            "$XDG_DATA_HOME/forebay, else ~/.local/share/forebay; as root /var/lib/forebay"
        );
        /// Size of the volume: `df` shows it, and writes beyond it fail with ENOSPC.
        volume_limit: Size = Fixed("1PiB"), "64MiB" to "1EiB";
        /// How a start treats a volume that another gateway holds, or did not close in order: `refuse` fails with
        /// exit code 3 and changes nothing; `allow` (`--take-over`) takes the volume, so that the other gateway stops,
        /// and its unpublished changes stay in its log. Two gateways with `allow` that are restarted take the volume
        /// from each other in turns.
        takeover: Takeover = Fixed("refuse");
    }
    "Clients" {
        /// Address and TCP port for NFS and MOUNT.
        listen: SocketAddr = Fixed("127.0.0.1:2049");
        /// Addresses that may mount, as networks (`10.0.0.0/8`, `10.0.0.0/255.0.0.0`) or single
        /// addresses; `*` is everybody. Everybody else is refused.
        clients: Clients = Fixed("127.0.0.0/8,::1");
        /// Whether clients may change anything: `rw`, or `ro`, where every change is refused.
        access: Access = Fixed("rw");
        /// Whose identity is replaced by that of `anonuid` and `anongid`: `root_squash` for root's,
        /// `all_squash` for everybody's, `no_root_squash` for nobody's; `auto` is `root_squash`, but lets
        /// loopback networks that `clients` names keep theirs.
        squash: Squash = Fixed("auto");
        /// User that squashed callers, and those without an identity, are taken for.
        anonuid: u32 = Fixed("65534");
        /// Group of those callers.
        anongid: u32 = Fixed("65534");
        /// Which credentials are taken: `sys` is user and groups as the client says, `none` takes whoever
        /// comes without them for the anonymous user.
        sec: Security = Fixed("sys");
        /// From which ports clients may connect: `secure` is those below 1024, which Unix machines let root
        /// alone use, so that other users there cannot pretend to be anybody; `insecure` is all.
        source_port: SourcePort = Fixed("secure");
        /// How connections have to be protected: `none` is not at all, `tls` is TLS, `mtls` is TLS in which
        /// the client shows a certificate that `tls_client_ca` accepts. What is better than one that is
        /// listed is taken as well.
        xprtsec: Xprtsec = Fixed("none,tls,mtls");
        /// PEM file with the certificate that the gateway shows to clients that ask for TLS (RFC 9289,
        /// `xprtsec=tls` of mount), and those between it and its authority; without it there is no TLS.
        tls_certificate: MaybeFile = Fixed("none");
        /// PEM file with the private key of that certificate, readable for its owner alone.
        tls_key: MaybeFile = Fixed("none");
        /// PEM file with the authorities whose clients are let in where `xprtsec` asks for `mtls`.
        tls_client_ca: MaybeFile = Fixed("none");
        /// What COMMIT, stable writes and changes of names wait for: `disk` is a flush of the log, which
        /// a power cut cannot undo; `bucket` is the bucket, so that losing the machine loses
        /// nothing; `async` is the log's memory, which survives a crash of the program only.
        commit: CommitMode = Fixed("disk");
        /// How many connections are served at once, as far as the limit of open files allows it; one more is
        /// closed. One client may have seven eighths of them.
        max_connections: u32 = Fixed("16384"), "1" to "65536";
        /// How long after a restart locks are given only to clients that held them before, if any
        /// did.
        lock_grace: Duration = Fixed("45s"), "5s" to "10m";
        /// Whether this machine's rpcbind is told the port, by which clients find the lock
        /// manager; `auto` does so if one runs and `listen` is no loopback address, `on` fails
        /// without one.
        rpcbind: Auto = Fixed("auto");
    }
    "Log" {
        /// Where writes go before they are in the bucket: `disk` is a log in `data_dir` that
        /// survives a crash; `none` keeps them in memory only, and COMMIT waits for the bucket.
        log: LogMode = Fixed("disk");
        /// Bytes of disk that the log may take. When they are full, writers wait for the bucket.
        log_limit: Size = Fixed("4GiB"), "16MiB" to "64TiB";
        /// Size of one file of the log.
        log_segment: Size = Fixed("32MiB"), "4MiB" to "1GiB";
    }
    "Memory" {
        /// Bytes of memory for block buffers, dirty and clean, and for bytes on their way to or from the bucket,
        /// for which an eighth of it is kept free of dirty bytes. The program needs further memory: up to 128MiB,
        /// `metadata_cache`, for names and attributes a third of `memory_limit`, 176MiB at most, and with a
        /// disk cache 32MiB and some 80 bytes for each frame in it.
        memory_limit: Size = Fixed("1GiB"), "64MiB" to "64TiB";
        /// Bytes of memory for metadata that were read from the bucket. Filters and indexes of a million files take
        /// some 6MiB; where they do not fit, each cold lookup fetches them anew.
        metadata_cache: Size = Fixed("64MiB"), "4MiB" to "1TiB";
    }
    "Disk cache" {
        /// Bytes of disk in `data_dir` for what was read from the bucket, so that it is not fetched again, after a
        /// restart neither; all of them are taken at the start. `0B` is none, else 256MiB or
        /// more.
        disk_cache_limit: Size = Fixed("0B"), "0B" to "512GiB";
    }
    "Bucket" {
        /// How often what was written is published to the bucket: at most this much is missing
        /// there if the machine is lost.
        checkpoint_interval: Duration = Fixed("5s"), "100ms" to "1h";
        /// Dirty bytes after which a checkpoint is closed before its time. What a sequential writer has left behind
        /// leaves without one, block after block, and counts no more once it is in the bucket.
        checkpoint_bytes: Size = Fixed("64MiB"), "4MiB" to "16GiB";
        /// `auto` compresses (zstd) what a sample shows to be worth it.
        compression: Compression = Fixed("auto");
        /// Level of zstd, 1 to 19: higher is smaller and slower. Of a range, the lowest counts, and higher ones while
        /// uploads wait for the link and the processor has time.
        compression_level: Levels = Fixed("1-9");
        /// Whether content that the volume already holds is uploaded again: `full` finds it by a strong hash of each
        /// frame, 256 KiB at most; `fast` computes that only where length and CRC32 are those of one that is known, which
        /// saves processor time where frames need no hash of their own. Both take up to 82MiB of memory; `off` uploads
        /// everything.
        dedup: Dedup = Fixed("off");
        /// How many packs are uploaded at once.
        upload_parallel: u32 = Fixed("4"), "1" to "64";
        /// Size at which a pack, the object that holds file data, is closed and uploaded.
        pack_bytes: Size = Fixed("8MiB"), "1MiB" to "64MiB";
        /// A pack is rewritten in the background when less of it is in use than this, in percent; 0 is
        /// never.
        rewrite_below: u32 = Fixed("50"), "0" to "90";
        /// Bytes per second that background work, which gives the bucket dead bytes back, may read and
        /// write.
        background_rate: Size = Fixed("16MiB"), "64KiB" to "16GiB";
        /// Requests per second that it may make.
        background_requests: u32 = Fixed("10"), "1" to "10000";
        /// How long a stop (SIGTERM) may publish changes that the bucket does not have yet, but 3s at most where the
        /// bucket has not answered for 5s. Remaining changes stay in the log and are published after the next start.
        /// Supervisors have to wait longer than this before they kill (Docker waits 10s, systemd 90s).
        shutdown_limit: Duration = Fixed("30s"), "0s" to "1h";
        /// Whether S3 requests name the bucket in the path and not in the host name; `auto` does
        /// so when an endpoint is set (`AWS_ENDPOINT_URL`).
        s3_path_style: Auto = Fixed("auto");
        /// Whether S3 uploads leave their payload out of the signature without TLS as well, which
        /// saves most of their CPU time and trusts the network; over TLS they always do.
        s3_unsigned_payload: Switch = Fixed("off");
        /// What S3 uploads carry so that the server can verify them: `crc32`; `md5` (Content-MD5), for servers that
        /// know no CRC32, and the ETag of the answer is then compared as well; `off` is nothing.
        s3_checksum: Checksum = Fixed("crc32");
        /// How the S3 server is asked to encrypt what it stores: `none` leaves that to the bucket, `AES256` is with its own keys
        /// (SSE-S3), `aws:kms` with a key of its key management (SSE-KMS).
        s3_encryption: Encryption = Fixed("none");
        /// The key for `s3_encryption = "aws:kms"`; `none` is the one that the server has for S3.
        s3_kms_key: KmsKey = Fixed("none");
        /// Storage class of packs, the objects that hold file data; metadata stay in the bucket's own, since they are
        /// read and deleted all the time. `none` is the bucket's for packs as well.
        s3_storage_class: StorageClass = Fixed("none");
        /// Tags of packs, such as `project=x,owner=y`; ten at most.
        s3_tags: Tags = Fixed("none");
        /// Whether an object that S3 has archived (GLACIER and the like) is restored when it is to be read: `expedited` takes
        /// minutes, `standard` hours, `bulk` up to two days, each cheaper than the one before. `off` logs the
        /// object's name and restores nothing.
        s3_restore: Restore = Fixed("off");
        /// For how many days a restored object can be read.
        s3_restore_days: u32 = Fixed("7"), "1" to "3650";
        /// Bytes per second that go to S3: one rate, and others for hours of the day in the machine's time zone, as in
        /// `100MiB/s,08:00-18:00 10MiB/s`. `none` is no limit.
        s3_upload_limit: LinkLimit = Fixed("none");
        /// Bytes per second that come from S3, written in the same way.
        s3_download_limit: LinkLimit = Fixed("none");
        /// PEM file with authorities that the certificate of the S3 server, and that of AWS KMS, may come from, beside
        /// those of the system.
        s3_ca: MaybeFile = Fixed("none");
        /// Through which proxy S3 and AWS KMS are spoken to: `auto` is the one that `HTTPS_PROXY` names (`HTTP_PROXY` for an endpoint
        /// without TLS), but for hosts in `NO_PROXY` and this machine; `none`, or a URL such as `http://proxy:3128`.
        s3_proxy: Proxy = Fixed("auto");
    }
    "Integrity" {
        /// How often each pack is read back from the bucket and verified, in the background: 1h or more. `0s` is never,
        /// unless `forebay scrub` asks for it. Reading costs what the bucket asks for requests and bytes.
        scrub_interval: Duration = Fixed("0s"), "0s" to "3650d";
        /// Bytes per second that are read for that, at most; while others read or upload, less.
        scrub_rate: Size = Fixed("8MiB"), "64KiB" to "64GiB";
    }
    "Encryption" {
        /// Whether the volume has to be sealed, so that nobody who reads the bucket learns contents or names: a new
        /// one is made so, and one that is not as this says is refused. The log in `data_dir` has a setting of its own, `seal_log`.
        encryption: Sealing = Fixed("off");
        /// Whether the log in `data_dir` has to be sealed as well: it is written so, and what is not sealed is not replayed. Needs
        /// `encryption`. Before it is switched on, the gateway has to be stopped in order.
        seal_log: Switch = Fixed("off");
        /// File with the passphrase that opens a sealed volume, in one line, readable for its owner alone. Without it,
        /// `key_file` and `kms_key` the passphrase is asked for, if standard input is a terminal.
        passphrase_file: MaybeFile = Fixed("none");
        /// File that opens a sealed volume in place of a passphrase: 32 or more random bytes, readable for its owner
        /// alone.
        key_file: MaybeFile = Fixed("none");
        /// Key of AWS KMS that opens a sealed volume in place of a passphrase: its ARN, its id, or an alias such as
        /// `alias/forebay`. Credentials come from the standard `AWS_*` variables, profiles or the machine's role. KMS is asked at a
        /// start, and not while the volume is served.
        kms_key: KmsKey = Fixed("none");
        /// Region of that key; `auto` is the one in its ARN, else that of `AWS_REGION`, the profile or the machine.
        kms_region: Region = Fixed("auto");
        /// URL of KMS; `auto` is that of `AWS_ENDPOINT_URL_KMS` or `AWS_ENDPOINT_URL`, else AWS's own for the region. Without TLS
        /// it has to be on this machine.
        kms_endpoint: Endpoint = Fixed("auto");
    }
    "Messages" {
        /// What is written to standard error.
        log_level: LogLevel = Fixed("info");
    }
}
