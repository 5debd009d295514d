/** Numbers: how they arrive, how they are read, and in which colour they are drawn. */

const MISSING = "–";
const SHADES = 24; // on each side of the middle; nobody tells more apart

/** The numbers of a column: base64 of little-endian float32. NaN is not known. */
function decoded(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

/** As a person reads it: 0.8325, 2e-4, −1.29; a dash where it is not known. */
function written(value, digits = 6, signed = false) {
  if (Number.isNaN(value)) return MISSING;
  const size = Math.abs(value);
  const plain = size === 0 || (size >= 1e-3 && size < 1e9);
  const text = plain
    ? String(Number(size.toPrecision(digits)))
    : size.toExponential(2).replace(/\.?0*e\+?/, "e");
  const sign = value < 0 ? "−" : signed && value > 0 ? "+" : "";
  return sign + text;
}

/** Whether the column's numbers are written with a plus. */
function plus({ signed, middle }) {
  return signed && middle === 0;
}

/** The least and the greatest known number; null where none is known. */
function range(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

/** Whether any number is not known. */
function incomplete(values) {
  return values.some(Number.isNaN);
}

/** Full colours, as [red, green, blue], from the custom properties of an element. */
function palette(element) {
  const style = getComputedStyle(element);
  const channels = (name) => [1, 3, 5].map((at) => parseInt(style.getPropertyValue(name).trim().slice(at, at + 2), 16));
  return { up: channels("--up"), down: channels("--down"), none: channels("--none"), size: channels("--size") };
}

/** From grey and faint to the full colour: as the root of the share, so that small values can be told from none. */
function shades(none, full) {
  return Array.from({ length: SHADES + 1 }, (_, level) => {
    const share = Math.sqrt(level / SHADES);
    const mixed = none.map((channel, index) => Math.round(channel + (full[index] - channel) * share));
    return `rgba(${mixed.join(",")},${(0.12 + 0.5 * share).toFixed(3)})`;
  });
}

/** A function from a value of the column to its colour; "" for one that is not known. */
function colouring({ signed, middle, reach }, colours) {
  const above = shades(colours.none, signed ? colours.up : colours.size);
  const below = shades(colours.none, colours.down);
  return (value) => {
    if (Number.isNaN(value)) return "";
    const share = reach === 0 ? 0 : (value - middle) / reach;
    const level = Math.min(SHADES, Math.round(Math.abs(share) * SHADES));
    return (signed && share < 0 ? below : above)[level];
  };
}
