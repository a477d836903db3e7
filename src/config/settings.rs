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
    Access, Auto, Checksum, Clients, CommitMode, Compression, ConfigError, Currency, Dedup,
    Encryption, Endpoint, Export, HostNames, KmsKey, LogFormat, LogLevels, LogMode, MaybeAddress,
    MaybeDuration, MaybeFile, OtlpEndpoint, Price, Region, Restore, Schedules, Sealing, Security,
    Setting, Size, Source, SourcePort, Squash, StorageClass, StoreUrl, Switch, Tags, Takeover,
    Value, VirtualDirectory, Written, Xprtsec, exports,
};

settings! {
    "Volume" {
        /// Where the volume lives: `s3://BUCKET/PREFIX`, or a local folder as `file:///PATH`.
        /// Credentials, region and endpoint of S3 come from the standard `AWS_*` variables and
        /// profiles.
        store: StoreUrl = Computed("file://<data_dir>/bucket");
        /// Local folder for the log and for the state that the gateway needs after a restart. One gateway at a time
        /// uses it, and no other user may read it: each start removes the permissions of other users.
        data_dir: PathBuf = Computed(
            "$XDG_DATA_HOME/forebay, else ~/.local/share/forebay; as root /var/lib/forebay"
        );
        /// Size of the volume: `df` shows it, and writes beyond it fail with ENOSPC.
        volume_limit: Size = Fixed("1PiB"), "64MiB" to "1EiB";
        /// Whether bytes that only snapshots refer to count against `volume_limit`: `df` shows a smaller volume then. With
        /// `off` snapshots have no limit but that of the bucket.
        snapshots_count: Switch = Fixed("off");
        /// What a start does if another gateway holds the volume, or did not shut down cleanly: `refuse` fails with
        /// exit code 3 and changes nothing; `allow` (`--take-over`) takes the volume over: the other gateway stops, and
        /// its unpublished changes stay in its log. Two gateways with `allow` that are restarted take the volume from
        /// each other again and again.
        takeover: Takeover = Fixed("refuse");
    }
    "Clients" {
        /// Address and TCP port for NFS and MOUNT.
        listen: SocketAddr = Fixed("127.0.0.1:2049");
        /// Addresses that may mount, as networks (`10.0.0.0/8`, `10.0.0.0/255.0.0.0`) or single addresses; `*` means
        /// all. All other addresses are refused.
        clients: Clients = Fixed("127.0.0.0/8,::1");
        /// Whether clients may change files: `rw` allows it, `ro` refuses every change.
        access: Access = Fixed("rw");
        /// Which users are replaced by `anonuid` and `anongid`: `root_squash` replaces root, `all_squash` all users,
        /// `no_root_squash` none; `auto` is `root_squash`, but `no_root_squash` for loopback networks in `clients`.
        squash: Squash = Fixed("auto");
        /// User id of squashed callers, and of callers without an identity.
        anonuid: u32 = Fixed("65534");
        /// Group id of those callers.
        anongid: u32 = Fixed("65534");
        /// Which credentials are accepted: `sys` is user and groups as the client sends them; with `none`, callers
        /// without credentials are the anonymous user.
        sec: Security = Fixed("sys");
        /// From which ports clients may connect: `secure` means ports below 1024, which only root can use on Unix
        /// machines, so that other users of a client machine cannot impersonate anyone; `insecure` means all ports.
        source_port: SourcePort = Fixed("secure");
        /// How clients see snapshots: every directory has a directory `.snapshot`, which no listing shows (`hidden`) or the
        /// listing of the export's own directory shows (`visible`); with `off` clients do not see snapshots.
        snapshot_directory: VirtualDirectory = Fixed("hidden");
        /// How long files that clients remove or replace stay in the [trash](snapshots.md#trash), from which `forebay
        /// undelete` brings them back, as in `24h`: whole seconds. `none` deletes them at once.
        trash: MaybeDuration = Fixed("none");
        /// How clients see the trash, if they have one: the export's own directory has a directory `.trash`, with the removed
        /// files of the caller, or all for root; no listing shows it (`hidden`), or that of the export's own directory
        /// (`visible`); with `off` clients do not see the trash.
        trash_directory: VirtualDirectory = Fixed("hidden");
        /// Required protection of connections: `none` is no protection, `tls` is TLS, `mtls` is TLS with a client
        /// certificate that `tls_client_ca` accepts. A better protection than a listed one is accepted as well.
        xprtsec: Xprtsec = Fixed("none,tls,mtls");
        /// PEM file with the certificate of the gateway for clients that ask for TLS (RFC 9289, `xprtsec=tls` of
        /// mount), followed by intermediate certificates; without it there is no TLS.
        tls_certificate: MaybeFile = Fixed("none");
        /// PEM file with the private key of that certificate, readable for its owner alone.
        tls_key: MaybeFile = Fixed("none");
        /// PEM file with the authorities that sign client certificates, for `mtls` in `xprtsec`.
        tls_client_ca: MaybeFile = Fixed("none");
        /// What COMMIT, stable writes and changes of names wait for: `disk` is a flush of the log, so that a power cut
        /// loses nothing; `bucket` is the bucket, so that losing the machine loses nothing; `async` is the log's
        /// memory, so that only a crash of the program loses nothing.
        commit: CommitMode = Fixed("disk");
        /// Connections that are served at once, as far as the limit of open files allows it; further ones are closed.
        /// One client may have seven eighths of them.
        max_connections: u32 = Fixed("16384"), "1" to "65536";
        /// Time after a restart in which only clients that held locks before get locks, if there are such clients.
        lock_grace: Duration = Fixed("45s"), "5s" to "10m";
        /// Whether to register with this machine's rpcbind, through which clients find the lock manager; `auto`
        /// registers if rpcbind runs and `listen` is not a loopback address, `on` fails without rpcbind.
        rpcbind: Auto = Fixed("auto");
    }
    "Log" {
        /// Where writes go before they are in the bucket: `disk` is a log in `data_dir` that
        /// survives a crash; `none` keeps them in memory only, and COMMIT waits for the bucket.
        log: LogMode = Fixed("disk");
        /// Bytes of disk that the log may take. With eight times `checkpoint_bytes` or more, a burst may be larger than
        /// memory, and as large as the log; then writers are slowed in its last eighth, to the rate of the bucket. When
        /// it is full, they wait for the bucket.
        log_limit: Size = Fixed("4GiB"), "16MiB" to "64TiB";
        /// Size of one file of the log.
        log_segment: Size = Fixed("32MiB"), "4MiB" to "1GiB";
    }
    "Memory" {
        /// Bytes of memory for block buffers, dirty and clean, and for bytes in transfer to or from the bucket, for
        /// which an eighth is kept free of dirty bytes. Dirty bytes beyond that are in the log alone, if `log_limit` is
        /// at least eight times `checkpoint_bytes`; else writers wait for the bucket. The program needs more memory: up
        /// to 128MiB, `metadata_cache`, for names and attributes a third of `memory_limit` (176MiB at most), and with a
        /// disk cache 32MiB and about 80 bytes for each frame in it.
        memory_limit: Size = Fixed("1GiB"), "64MiB" to "64TiB";
        /// Bytes of memory for metadata that were read from the bucket. Filters and indexes of a million files take
        /// about 6MiB; if they do not fit, each cold lookup fetches them again.
        metadata_cache: Size = Fixed("64MiB"), "4MiB" to "1TiB";
    }
    "Disk cache" {
        /// Bytes of disk in `data_dir` to cache data that were read from the bucket, also across restarts; the space is
        /// allocated at the start. `0B` is no cache, else 256MiB or more.
        disk_cache_limit: Size = Fixed("0B"), "0B" to "512GiB";
    }
    "Bucket" {
        /// How old unpublished changes are when their publication begins at the latest, while log and bucket keep up with
        /// the writers. Losing the machine loses the changes of this time, and of the time that a publication takes.
        checkpoint_interval: Duration = Fixed("5s"), "100ms" to "1h";
        /// Dirty bytes that close a checkpoint early. Finished blocks of a sequential writer are uploaded before that,
        /// and do not count once they are in the bucket. One closes at this many bytes of the log, or at a
        /// thirty-second of `log_limit` if that is more, also while no upload may begin.
        checkpoint_bytes: Size = Fixed("64MiB"), "4MiB" to "16GiB";
        /// `auto` compresses (zstd) where a sample shows that it pays; `off` does not compress.
        compression: Compression = Fixed("auto");
        /// Level of zstd, 1 to 19: higher is smaller and slower. For a range, the lowest level is used, and higher ones
        /// while uploads wait for the link and the processor is idle.
        compression_level: Levels = Fixed("1-9");
        /// Whether content that the volume already holds is uploaded again: `full` finds it by a strong hash of each
        /// frame, 256 KiB at most; `fast` computes that hash only if length and CRC32 match a known frame, which saves
        /// processor time where frames need no hash otherwise. Both take up to 82MiB of memory; `off` uploads
        /// everything.
        dedup: Dedup = Fixed("off");
        /// Number of packs that are uploaded at once.
        upload_parallel: u32 = Fixed("4"), "1" to "64";
        /// Size at which a pack, the object that holds file data, is closed and uploaded.
        pack_bytes: Size = Fixed("8MiB"), "1MiB" to "64MiB";
        /// A pack is rewritten in the background when less than this percentage of it is in use; 0 is never.
        rewrite_below: u32 = Fixed("50"), "0" to "90";
        /// A fragmented block, which takes several GETs, is copied into one place in the background when it was not
        /// published for this time; `0s` is never.
        defragment_after: Duration = Fixed("1m"), "0s" to "3650d";
        /// Bytes per second that garbage collection in the background may read and write.
        background_rate: Size = Fixed("16MiB"), "64KiB" to "16GiB";
        /// Requests per second that garbage collection may make.
        background_requests: u32 = Fixed("10"), "1" to "10000";
        /// How long a shutdown (SIGTERM) may publish changes that are not in the bucket yet; 3s at most if the bucket
        /// has not answered for 5s. Remaining changes stay in the log and are published after the next start.
        /// Supervisors have to wait longer than this before SIGKILL (Docker waits 10s, systemd 90s).
        shutdown_limit: Duration = Fixed("30s"), "0s" to "1h";
        /// Whether S3 requests have the bucket in the path and not in the host name; `auto` does so if an endpoint is
        /// set (`AWS_ENDPOINT_URL`).
        s3_path_style: Auto = Fixed("auto");
        /// Whether S3 uploads leave the payload out of the signature even without TLS, which saves most of their CPU
        /// time and trusts the network; over TLS the payload is never signed.
        s3_unsigned_payload: Switch = Fixed("off");
        /// Checksum of S3 uploads, which the server verifies: `crc32`; `md5` (Content-MD5), for servers without CRC32:
        /// then the ETag of the answer is compared as well; `off` is no checksum.
        s3_checksum: Checksum = Fixed("crc32");
        /// Encryption that the S3 server is asked for: `none` leaves that to the bucket, `AES256` is with its own keys
        /// (SSE-S3), `aws:kms` with a key of its key management (SSE-KMS).
        s3_encryption: Encryption = Fixed("none");
        /// The key for `s3_encryption = "aws:kms"`; `none` is the server's default key for S3.
        s3_kms_key: KmsKey = Fixed("none");
        /// Storage class of packs, the objects that hold file data; metadata stay in the bucket's default class, since
        /// they are read and deleted all the time. `none` is the bucket's default class for packs as well.
        s3_storage_class: StorageClass = Fixed("none");
        /// Tags of packs, such as `project=x,owner=y`; ten at most.
        s3_tags: Tags = Fixed("none");
        /// Whether an object that S3 has archived (GLACIER and the like) is restored when a read needs it: `expedited`
        /// takes minutes, `standard` hours, `bulk` up to two days, each cheaper than the one before. `off` logs the
        /// object's name and restores nothing.
        s3_restore: Restore = Fixed("off");
        /// Days that a restored object can be read.
        s3_restore_days: u32 = Fixed("7"), "1" to "3650";
        /// Bytes per second that are sent to S3: one rate, and others for hours of the day in the machine's time zone,
        /// as in `100MiB/s,08:00-18:00 10MiB/s`. `none` is no limit.
        s3_upload_limit: LinkLimit = Fixed("none");
        /// Bytes per second that are received from S3, in the same form.
        s3_download_limit: LinkLimit = Fixed("none");
        /// PEM file with authorities to trust for the certificates of the S3 server and of AWS KMS, in addition to
        /// those of the system.
        s3_ca: MaybeFile = Fixed("none");
        /// Proxy for S3 and AWS KMS: `auto` is the one in `HTTPS_PROXY` (`HTTP_PROXY` for an endpoint without TLS),
        /// except for hosts in `NO_PROXY` and this machine; `none`, or a URL such as `http://proxy:3128`.
        s3_proxy: Proxy = Fixed("auto");
    }
    "Snapshots" {
        /// When [snapshots](snapshots.md#schedules) are made, and how many are kept, as in
        /// `15m x 8,1h x 24,1d x 30`: one every 15 minutes, of which the last 8 are kept, and so on. At times in UTC:
        /// `1d` is midnight. Intervals are 1m to 366d; all together keep 1000 at most. `none` makes and deletes none.
        snapshot_schedule: Schedules = Fixed("none");
        /// Bytes that the [trash](snapshots.md#trash) may take, with 4 KiB for each object in it. What would be deleted
        /// first anyway makes room. The trash counts in no quota, and not against `volume_limit`.
        trash_limit: Size = Fixed("100GiB"), "1MiB" to "1EiB";
    }
    "Integrity" {
        /// How often each pack is read back from the bucket and verified, in the background: 1h or more. `0s` is never,
        /// except for `forebay scrub`. The provider bills the requests and the bytes.
        scrub_interval: Duration = Fixed("0s"), "0s" to "3650d";
        /// Bytes per second that a scrub reads, at most; less while clients read or uploads are in flight.
        scrub_rate: Size = Fixed("8MiB"), "64KiB" to "64GiB";
    }
    "Encryption" {
        /// Whether the volume has to be sealed, which hides contents and names from readers of the bucket: a new volume
        /// is created like this, and an existing one that differs is refused. The log in `data_dir` has a setting of
        /// its own, `seal_log`.
        encryption: Sealing = Fixed("off");
        /// Whether the log in `data_dir` has to be sealed as well: new segments are sealed, and unsealed ones are not
        /// replayed. Needs `encryption`. Shut the gateway down cleanly before you switch it on.
        seal_log: Switch = Fixed("off");
        /// File with the passphrase that opens a sealed volume, in one line, readable for its owner alone. Without it,
        /// `key_file` and `kms_key`, the program asks for the passphrase if standard input is a terminal.
        passphrase_file: MaybeFile = Fixed("none");
        /// File that opens a sealed volume in place of a passphrase: 32 or more random bytes, readable for its owner
        /// alone.
        key_file: MaybeFile = Fixed("none");
        /// Key of AWS KMS that opens a sealed volume in place of a passphrase: its ARN, its id, or an alias such as
        /// `alias/forebay`. Credentials come from the standard `AWS_*` variables, profiles or the machine's role. KMS
        /// is used at a start only, not while the volume is served.
        kms_key: KmsKey = Fixed("none");
        /// Region of that key; `auto` is the one in its ARN, else that of `AWS_REGION`, the profile or the machine.
        kms_region: Region = Fixed("auto");
        /// URL of KMS; `auto` is that of `AWS_ENDPOINT_URL_KMS` or `AWS_ENDPOINT_URL`, else AWS's own for the region. Without TLS
        /// it has to be on this machine.
        kms_endpoint: Endpoint = Fixed("auto");
    }
    "Admin HTTP" {
        /// Address and TCP port of the admin HTTP server; `none` is no such server. An address that is not of this machine
        /// alone (loopback) needs TLS. If the default is in use by another program, the gateway serves without it.
        admin_listen: MaybeAddress = Fixed("127.0.0.1:9049");
        /// PEM file with the certificate of the admin HTTP server, followed by intermediate certificates; without it the
        /// server speaks HTTP without TLS.
        admin_tls_certificate: MaybeFile = Fixed("none");
        /// PEM file with the private key of that certificate, readable for its owner alone.
        admin_tls_key: MaybeFile = Fixed("none");
        /// File with the token for changes (POST) over admin HTTP, in one line of 20 to 1024 characters, readable for its
        /// owner alone; without it, no such change is possible.
        admin_token: MaybeFile = Fixed("none");
        /// Names and addresses under which clients reach the admin HTTP server, besides `localhost`, loopback addresses and
        /// the address that they are connected to. Requests for all other names are refused: pages of other sites
        /// in a browser on this machine could send them.
        admin_hosts: HostNames = Fixed("none");
    }
    "Messages" {
        /// Least severe level of messages that are written to standard error: `error`, `warn`, `info`, `debug` or
        /// `trace`; after it, levels of modules, as in `info,nfs=debug`. Modules are `program`, `nfs`, `fs`, `meta`,
        /// `packs`, `object`, `environment`, `view`, `fsck` and `types`, and the libraries `slatedb` and `aws`.
        log_level: LogLevels = Fixed("info");
        /// Form of messages on standard error: `text`, or `json`, one object a line.
        log_format: LogFormat = Fixed("text");
        /// Calls of clients that take at least this long are logged, one line each, with what they waited for: at most 10 a
        /// minute for each client and 100 for all, and then the number of the others. `none` logs none.
        slow_call: MaybeDuration = Fixed("1s");
        /// Collector of OpenTelemetry (OTLP over HTTP, without TLS) that [slow calls](operations.md#spans-of-slow-calls) are
        /// sent to as spans, at `/v1/traces` below this URL. Needs a program that is built with `--features otlp`.
        otlp_endpoint: OtlpEndpoint = Fixed("none");
    }
    "Prices" {
        /// Price of 1,000 requests that write or list (PUT, COPY, POST and LIST), for [the cost](costs.md#the-bucket) in
        /// `forebay status`. All prices are for this alone; the defaults are those of AWS S3 Standard in us-east-1.
        prices_writes: Price = Fixed("0.005");
        /// Price of 1,000 requests that read (GET and HEAD).
        prices_reads: Price = Fixed("0.0004");
        /// Price of 1,000 requests that delete.
        prices_deletes: Price = Fixed("0");
        /// Price of 1 GB (1024 MiB) that is stored for a month.
        prices_storage: Price = Fixed("0.023");
        /// Price of 1 GB that leaves the bucket: 0 for a machine in the bucket's region, where AWS charges nothing.
        prices_download: Price = Fixed("0");
        /// Currency of these prices, 1 to 8 characters.
        prices_currency: Currency = Fixed("USD");
    }
}
