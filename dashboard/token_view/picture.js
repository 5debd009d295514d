/** The curve as a picture that stands alone: an SVG with its title and its axes, and a PNG of that. */

const PICTURE = { width: 760, height: 280, left: 60, right: 18, top: 48, bottom: 46, sharpness: 2 };
const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

/** The picture of what a chart has drawn, as text. */
function svgOf(drawn) {
  const { width, height, left, right, top, bottom } = PICTURE;
  const { column, values, colours, clipped } = drawn;
  const [low, high] = ends(column, values);
  const x = (place) => left + ((place + 0.5) / values.length) * (width - left - right);
  const share = (value) => (high > low ? (value - low) / (high - low) : 0.5);
  const y = (value) => height - bottom - share(value) * (height - top - bottom);
  const base = y(column.middle);
  const { line, area } = curve(values, width - left - right, x, y, base);
  const root = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "font-family": "Arial, sans-serif" });
  const words = (text, look) => root.append(shape("text", { "font-size": 12, fill: "#66707c", ...look }, text));
  root.append(shape("rect", { width, height, fill: "#fff" }));
  const title = { "font-size": 14, "font-weight": "bold", fill: "#20252b" };
  words(`${column.title} along the tokens`, { x: left, y: 24, ...title });
  const side = (name, from, to, full) => {
    const cut = shape("clipPath", { id: name });
    cut.append(shape("rect", { x: left, y: from, width: width - left - right, height: Math.max(0, to - from) }));
    const colour = `rgb(${full.join(",")})`;
    const clip = { "clip-path": `url(#${name})` };
    root.append(cut, shape("path", { d: area, fill: colour, "fill-opacity": 0.22, ...clip }));
    root.append(shape("path", { d: line, fill: "none", stroke: colour, "stroke-width": 1.25, ...clip }));
  };
  if (column.signed) {
    side("above", top - 2, base, colours.up);
    side("below", base, height - bottom + 2, colours.down);
  } else side("all", top - 2, height - bottom + 2, colours.size);
  root.append(shape("line", { x1: left, x2: width - right, y1: base, y2: base, stroke: "#8c929c" }));
  for (const place of clipped) {
    root.append(shape("rect", { x: x(place) - 0.75, y: top - 8, width: 1.5, height: 5, fill: "#20252b" }));
  }
  for (const value of new Set([low, column.middle, high])) {
    words(written(value, 3, plus(column)), { x: left - 8, y: y(value) + 4, "text-anchor": "end" });
  }
  for (const place of [0, values.length - 1]) {
    words(place + 1, { x: x(place), y: height - bottom + 18, "text-anchor": "middle" });
  }
  words("token", { x: (left + width - right) / 2, y: height - 10, "text-anchor": "middle" });
  return new XMLSerializer().serializeToString(root);
}

/** The same as PNG. */
async function pngOf(svg) {
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await picture.decode();
  const canvas = document.createElement("canvas");
  canvas.width = PICTURE.width * PICTURE.sharpness;
  canvas.height = PICTURE.height * PICTURE.sharpness;
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

/** Hand the picture to the person; `kind` is svg or png. */
async function save(drawn, kind, name) {
  const svg = svgOf(drawn);
  const blob = kind === "svg" ? new Blob([svg], { type: "image/svg+xml" }) : await pngOf(svg);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${name}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
