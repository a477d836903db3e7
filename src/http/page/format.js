// Numbers, times and foreign text for people.

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

const isNumber = Number.isFinite;

/** A number with three digits, or a dash where there is none. */
export function number(value) {
  if (!isNumber(value)) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  if (Math.abs(value) < 0.01) return "< 0.01";
  return digits(value);
}

function digits(value) {
  const places = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return String(Number(value.toFixed(places)));
}

/** Bytes in binary units, as `forebay status` prints them. */
export function bytes(value) {
  if (!isNumber(value)) return "–";
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < BINARY.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${Math.round(value)} B` : `${value.toFixed(1)} ${BINARY[unit]}`;
}

/** Bytes per second. */
export const rate = (value) => (isNumber(value) ? `${bytes(value)}/s` : "–");

/** Calls or requests per second. */
export const each = (value) => (isNumber(value) ? `${number(value)}/s` : "–");

/** A short time, such as that of a call. */
export function latency(seconds) {
  if (!isNumber(seconds)) return "–";
  if (seconds <= 0) return "0 s";
  if (seconds < 1e-3) return `${digits(seconds * 1e6)} µs`;
  if (seconds < 1) return `${digits(seconds * 1e3)} ms`;
  return seconds < 100 ? `${digits(seconds)} s` : age(seconds);
}

/** A long time, in its two largest units. */
export function age(seconds) {
  if (!isNumber(seconds)) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  let rest = Math.round(seconds);
  const parts = [];
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const count = Math.floor(rest / length);
    if (count > 0) parts.push(`${count} ${unit}`);
    rest -= count * length;
  }
  return parts.slice(0, 2).join(" ");
}

/** A time of day on this machine; with the day if it is another one than today. */
export function clock(unixSeconds) {
  const at = new Date(unixSeconds * 1000);
  if (Number.isNaN(at.getTime())) return "at an unknown time";
  const two = (value) => String(value).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (at.toDateString() === new Date().toDateString()) return time;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

/** Money. */
export function money(value, currency) {
  if (!isNumber(value)) return "–";
  const text = Math.abs(value) >= 1 || value === 0 ? value.toFixed(2) : Number(value.toPrecision(2)).toFixed(Math.min(9, 1 - Math.floor(Math.log10(Math.abs(value)))));
  return `${text} ${currency}`;
}

export const percent = (part, whole) => (whole > 0 ? `${Math.floor((part / whole) * 100)} %` : "–");

// Characters that show nothing, or that change how others are shown: controls, directions, joiners, private ones.
const UNSEEN =
  /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;

const escapeOf = (character) => `\\u{${character.codePointAt(0).toString(16)}}`;

/** A path as it is, from one in which all bytes but printable ASCII are escaped (`\xe2`, `\n`). */
export function unescaped(path) {
  const named = { "\\n": 10, "\\r": 13, "\\t": 9 };
  const all = Array.from(path.matchAll(/\\x(..)|\\?(.)/g), ([whole, hex, one]) => (hex ? parseInt(hex, 16) : named[whole] ?? one.charCodeAt(0)));
  return new TextDecoder().decode(new Uint8Array(all));
}

/** Foreign text in which every character can be seen. */
export const visible = (text) => String(text).replace(UNSEEN, escapeOf);

/** The same as nodes for the page, with escapes that can be told from text that looks like them. */
export function foreign(text, most = 400) {
  const all = Array.from(String(text));
  const whole = all.length <= most;
  const shown = whole ? String(text) : `${all.slice(0, most / 2).join("")}…${all.slice(-most / 2).join("")}`;
  const holder = document.createElement("bdi");
  holder.className = "foreign";
  holder.dir = "ltr";
  let from = 0;
  for (const match of shown.matchAll(UNSEEN)) {
    holder.append(shown.slice(from, match.index));
    const mark = document.createElement("span");
    mark.className = "escape";
    mark.textContent = escapeOf(match[0]);
    holder.append(mark);
    from = match.index + match[0].length;
  }
  holder.append(shown.slice(from));
  if (!whole) holder.title = visible(text);
  return holder;
}
