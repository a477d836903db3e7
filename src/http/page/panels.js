// What is shown of a gateway: plots, bars and tables.

import { byId, make, setText } from "./dom.js";
import { age, bytes, clock, each, foreign, latency, money, number, percent, rate, unescaped } from "./format.js";
import { Plot } from "./plot.js";
import { Table } from "./table.js";

/** From this part of a limit on, a bar warns; the gateway's health does so for the log. */
const NEARLY_FULL = 0.9;

/** Traffic of one kind: the figures now, and two plots. */
class Traffic {
  #kind;
  #figures;
  #plots;

  constructor(kind, hasBytes) {
    this.#kind = kind;
    this.#figures = new Figures(byId(kind), hasBytes ? ["throughput", "calls", "median", "p99"] : ["calls", "median", "p99"]);
    const of = (name) => (point) => point[kind][name];
    const throughput = hasBytes
      ? new Plot("Throughput", { series: [{ name: "bytes", of: of("bytes_per_second") }], format: rate, scale: "binary", least: 1024 })
      : new Plot("Calls", { series: [{ name: "calls", of: of("calls_per_second") }], format: each });
    const time = new Plot("Latency", {
      series: [{ name: "p99", of: of("p99_seconds") }, { name: "median", of: of("median_seconds") }],
      format: latency, scale: "log", least: 1e-4,
    });
    this.#plots = [throughput, time];
    byId(kind).append(...this.#plots.map((plot) => plot.element));
  }

  show(points, now, gap) {
    const flow = points[points.length - 1]?.[this.#kind];
    this.#figures.show({
      throughput: rate(flow?.bytes_per_second), calls: each(flow?.calls_per_second),
      median: latency(flow?.median_seconds), p99: latency(flow?.p99_seconds),
    });
    for (const plot of this.#plots) plot.show(points, now, gap);
  }
}

/** Some figures with their names; the first is the largest. */
class Figures {
  #values = {};

  constructor(host, names) {
    const list = make("dl", { class: "figures" });
    for (const name of names) {
      const value = make("dd", {}, "–");
      this.#values[name] = value;
      list.append(make("div", {}, make("dt", {}, name), value));
    }
    host.append(list);
  }

  show(texts) {
    for (const [name, value] of Object.entries(this.#values)) setText(value, texts[name]);
  }
}

/** A quantity against its limit. */
class Bar {
  #bar = make("span", { class: "fill" });
  #text = make("span", { class: "of" });
  #meter;
  #name;

  constructor(host, name) {
    this.#name = name;
    this.#meter = make("div", { class: "bar", role: "meter", "aria-label": name, "aria-valuemin": "0" }, this.#bar);
    host.append(make("div", { class: "limit" }, make("span", { class: "what" }, name), this.#text, this.#meter));
  }

  show(used, limit) {
    if (!limit) {
      setText(this.#text, "none");
      this.#meter.hidden = true;
      return;
    }
    const part = Math.min(1, Math.max(0, (used ?? 0) / limit));
    const full = part >= NEARLY_FULL;
    const text = `${bytes(used)} of ${bytes(limit)} · ${percent(used, limit)}${full ? ": nearly full" : ""}`;
    setText(this.#text, text);
    this.#meter.hidden = false;
    this.#bar.style.width = `${(part * 100).toFixed(2)}%`;
    this.#meter.classList.toggle("full", full);
    this.#meter.setAttribute("aria-valuemax", String(limit));
    this.#meter.setAttribute("aria-valuenow", String(Math.min(used ?? 0, limit)));
    this.#meter.setAttribute("aria-valuetext", text);
  }
}

/** A table in its panel. */
function table(id, description) {
  const made = new Table(description);
  byId(id).append(made.element);
  return made;
}

const column = (title, name, format) => ({ title, of: (row) => row[name], cell: (row) => format(row[name]) });

const FLOW = [
  column("calls", "calls_per_second", each),
  column("read", "read_bytes_per_second", rate),
  column("written", "written_bytes_per_second", rate),
];

/** The snapshots, what they hold, and when the next one is due; null without any. */
function snapshots({ snapshots: count, snapshot_held_bytes: held, next_snapshot: next }) {
  const due = next === null ? [] : [`the next one ${clock(next)}`];
  const all = count > 0 ? [`${number(count)}, which hold ${bytes(held)} that files do not need`] : [];
  return [...all, ...due].join("; ") || null;
}

/** The shares of look-ups that the caches answered; empty before the first one. A cache that is off is null. */
function hits(metadata, disk) {
  const share = (cache, missed, what) => cache && cache.hits + missed > 0 ? [`${percent(cache.hits, cache.hits + missed)} of the ${what}`] : [];
  const found = [
    ...share(metadata, metadata?.misses, "parts of metadata tables in memory"),
    ...share(disk, disk?.misses + disk?.damaged, "frames in the disk cache"),
  ];
  return found.length > 0 ? `Found since the start: ${found.join(", ")}.` : "";
}

const fileName = ({ path, fileid }) => (path ? unescaped(path) : `file ${fileid}, whose name is not known`);
const cause = ({ method, cause: why }) => `${why} ${method.toUpperCase()}`;

export class Panels {
  #traffic = [new Traffic("reads", true), new Traffic("writes", true), new Traffic("names", false)];
  #behind = new Figures(byId("unpublished"), ["of the log", "oldest", "file data"]);
  #bucket = new Figures(byId("bucket"), ["requests", "errors", "p99"]);
  #plots;
  #bars;
  #hits = make("p", { class: "muted" });
  #clients;
  #files;
  #procedures;
  #requests;
  #waits;
  #facts = make("dl", { class: "facts" });
  #cost = null;
  #costText = make("p", { class: "muted" });
  #costTable;

  constructor() {
    const bucket = (name) => (point) => point.bucket[name];
    const behind = [
      new Plot("Bytes", { series: [{ name: "of the log", of: (point) => point.unpublished_bytes }], format: bytes, scale: "binary", least: 1024 }),
      new Plot("Age of the oldest change", { series: [{ name: "age", of: (point) => point.unpublished_age_seconds ?? 0 }], format: age, scale: "time", least: 5 }),
    ];
    const store = [
      new Plot("Throughput", {
        series: [{ name: "PUT", of: bucket("put_bytes_per_second") }, { name: "GET", of: bucket("get_bytes_per_second") }],
        format: rate, scale: "binary", least: 1024,
      }),
      new Plot("Latency of requests", { series: [{ name: "p99", of: bucket("p99_seconds") }], format: latency, scale: "log", least: 1e-2 }),
    ];
    byId("unpublished").append(...behind.map((plot) => plot.element));
    byId("bucket").append(...store.map((plot) => plot.element));
    this.#plots = [...behind, ...store];
    const limits = byId("limits");
    this.#bars = {
      log: new Bar(limits, "Log"),
      memory: new Bar(limits, "Memory"),
      names: new Bar(limits, "Names in memory"),
      disk_cache: new Bar(limits, "Disk cache"),
    };
    limits.append(this.#hits);
    byId("facts").append(this.#facts);
    this.#tables();
  }

  #tables() {
    const note = "average of the last 10 s";
    this.#clients = table("clients", {
      caption: "Busiest clients", note, empty: "No client has called in the last 10 s.",
      columns: [{ title: "client", of: (row) => row.address, cell: (row) => foreign(row.address) }, ...FLOW, column("mean", "mean_seconds", latency)],
    });
    this.#files = table("files", {
      caption: "Busiest files", note, empty: "No file was read or written in the last 10 s.",
      columns: [{ title: "file", of: fileName, cell: (row) => foreign(fileName(row), 160) }, ...FLOW],
    });
    this.#procedures = table("procedures", {
      caption: "NFS procedures", note, empty: "No calls in the last 10 s.",
      columns: [
        { title: "procedure", of: (row) => row.procedure, cell: (row) => foreign(row.procedure) },
        FLOW[0], column("errors", "errors_per_second", each), column("median", "median_seconds", latency), column("p99", "p99_seconds", latency),
      ],
    });
    this.#requests = table("requests", {
      caption: "S3 requests by cause", note, empty: "No requests in the last 10 s.",
      columns: [
        { title: "cause and method", of: cause, cell: (row) => foreign(cause(row)) },
        column("requests", "requests_per_second", each), column("errors", "errors_per_second", each), column("bytes", "bytes_per_second", rate),
        column("median", "median_seconds", latency), column("p99", "p99_seconds", latency),
      ],
    });
    this.#waits = table("waits", {
      caption: "What calls wait for", note, empty: "No call has waited in the last 10 s.",
      columns: [
        { title: "for", of: (row) => row.for, cell: (row) => foreign(row.for) },
        { title: "waiting", of: (row) => row.waited_seconds_per_second, cell: (row) => number(row.waited_seconds_per_second) },
        FLOW[0], column("median", "median_seconds", latency), column("p99", "p99_seconds", latency),
      ],
    });
    this.#costTable = new Table({
      caption: "Requests by cause", empty: "No requests since the start.",
      columns: [
        { title: "cause", of: (row) => row.cause, cell: (row) => foreign(row.cause) },
        column("requests", "requests", number),
        { title: "since start", of: (row) => row.since_start, cell: (row) => this.#price(row.since_start) },
        { title: "per day", of: (row) => row.per_day, cell: (row) => this.#price(row.per_day) },
      ],
    });
    byId("cost").append(this.#costText, this.#costTable.element);
    this.#costTable.element.hidden = true;
  }

  /** Shows an answer of `/api/v1/live`, and the samples of the last minutes. */
  samples(live, points, gap) {
    for (const traffic of this.#traffic) traffic.show(points, live.time, gap);
    for (const plot of this.#plots) plot.show(points, live.time, gap);
    const last = points[points.length - 1];
    const { bucket } = last ?? {};
    this.#bucket.show({
      requests: each(bucket?.requests_per_second), errors: each(bucket?.errors_per_second), p99: latency(bucket?.p99_seconds),
    });
    if (last) for (const name of ["log", "memory", "names", "disk_cache"]) {
      this.#bars[name].show(last[`${name}_bytes`], live.limits[`${name}_bytes`]);
    }
    this.#clients.show(live.clients);
    this.#files.show(live.files);
    this.#procedures.show(live.procedures);
    this.#requests.show(live.requests);
    this.#waits.show(live.waits);
  }

  /** Shows an answer of `/api/v1/status`. */
  status(status) {
    const { metadata_cache: metadata, disk_cache: cache, space, compression } = status;
    this.#behind.show({
      "of the log": bytes(status.unpublished_bytes), oldest: age(status.oldest_unpublished_age_seconds ?? 0), "file data": bytes(status.dirty_bytes),
    });
    setText(this.#hits, hits(metadata, cache));
    this.#showFacts({
      Store: foreign(status.store),
      "NFS on": status.listen,
      Epoch: String(status.epoch),
      LSN: `published ${status.published_lsn}, durable ${status.durable_lsn}, end ${status.log_end_lsn}`,
      Uploads: `${status.uploads_in_flight} in flight, checkpoint ${status.checkpoint} is open`,
      "In the bucket": space.packs === undefined ? "not counted before the first change" : `${bytes(space.stored_bytes)} in ${number(space.packs)} packs`,
      Compression: compression.raw_bytes > 0 ? `${bytes(compression.raw_bytes)} became ${bytes(compression.stored_bytes)}` : null,
      Snapshots: snapshots(status),
      Trash: status.trash_objects > 0 ? `${number(status.trash_objects)} files and directories, ${bytes(status.trash_bytes)}` : null,
      "Archived logs": status.archived_logs.logs > 0 ? `${status.archived_logs.logs} with ${bytes(status.archived_logs.bytes)}: see forebay log list` : null,
      Running: `${age(status.uptime_seconds)}, version ${status.version}`,
    });
    this.#showCost(status.cost);
  }

  #showFacts(facts) {
    const shown = Object.entries(facts).filter(([, value]) => value !== null);
    this.#facts.replaceChildren(...shown.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  }

  #price(value) {
    return money(value, this.#cost.currency);
  }

  #showCost(cost) {
    this.#cost = cost;
    this.#costTable.element.hidden = false;
    const storage = cost.storage_per_day === null ? "" : `, of that ${this.#price(cost.storage_per_day)} for storage`;
    this.#costText.replaceChildren(
      make("strong", { class: "figure" }, `${this.#price(cost.per_day)} a day`),
      make("span", {}, `at the rate of the last ${age(cost.window_seconds)}${storage}; ${this.#price(cost.since_start)} since the start. Prices: `),
      foreign(cost.prices));
    this.#costTable.show(cost.by_cause);
  }
}
