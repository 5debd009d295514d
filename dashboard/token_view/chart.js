/** One value along the positions of the tokens. */

/**
 * The positions to draw, in their order, so that no extreme is lost: all of them, or the least and the greatest under each
 * pixel. A pixel under which nothing is known gives one position, at which the line breaks.
 */
function thinned(values, width) {
  const count = values.length;
  if (count <= 2 * width) return Array.from(values.keys());
  const kept = [];
  for (let pixel = 0; pixel < width; pixel += 1) {
    const start = Math.floor((pixel * count) / width);
    const end = Math.floor(((pixel + 1) * count) / width);
    let low = start;
    let high = start;
    for (let place = start; place < end; place += 1) {
      const value = values[place];
      if (Number.isNaN(value)) continue;
      if (!(values[low] <= value)) low = place;
      if (!(values[high] >= value)) high = place;
    }
    kept.push(Math.min(low, high));
    if (low !== high) kept.push(Math.max(low, high));
  }
  return kept;
}

/** The least and the greatest of the axis: the base lies within. */
function ends(column, values) {
  const [least, most] = range(values);
  return [Math.min(least, column.middle), Math.max(most, column.middle)];
}

/** The line, and the area between it and the base, as path data; both break where a value is not known. */
function curve(values, width, x, y, base) {
  const line = [];
  const area = [];
  let last = null;
  for (const place of thinned(values, Math.floor(width))) {
    const value = values[place];
    if (Number.isNaN(value)) {
      if (last !== null) area.push(`L${x(last)} ${base}`);
      last = null;
      continue;
    }
    if (last === null) {
      line.push(`M${x(place)} ${y(value)}`);
      area.push(`M${x(place)} ${base}`);
    }
    line.push(`L${x(place)} ${y(value)}`);
    area.push(`L${x(place)} ${y(value)}`);
    last = place;
  }
  if (last !== null) area.push(`L${x(last)} ${base}`);
  return { line: line.join(""), area: area.join("") };
}

class Chart {
  constructor(box) {
    this.box = box;
    this.canvas = box.querySelector("canvas");
    this.drawn = null;
    this.sized = new ResizeObserver(() => this.draw());
    this.sized.observe(box);
  }

  leave() {
    this.sized.disconnect();
  }

  show(column, values, colour, colours, clipped) {
    this.drawn = { column, values, colour, colours, clipped };
    this.draw();
  }

  /** The position under a point of the screen. */
  place(clientX) {
    const { left, width } = this.box.getBoundingClientRect();
    const count = this.drawn.values.length;
    return Math.max(0, Math.min(count - 1, Math.floor(((clientX - left) / width) * count)));
  }

  /** Put a mark at a position, or take it off. */
  mark(kind, place) {
    const mark = this.box.querySelector(`.mark.${kind}`);
    mark.hidden = place === null;
    if (place !== null) mark.style.left = `${((place + 0.5) / this.drawn.values.length) * 100}%`;
  }

  draw() {
    const width = this.box.clientWidth;
    const height = this.box.clientHeight;
    const sharpness = window.devicePixelRatio || 1;
    this.canvas.width = width * sharpness;
    this.canvas.height = height * sharpness;
    if (!this.drawn || !width) return;
    const { column, values } = this.drawn;
    const base = column.middle;
    const [low, high] = ends(column, values);
    const x = (place) => ((place + 0.5) / values.length) * width;
    const y = (value) => (high > low ? height - 5 - ((value - low) / (high - low)) * (height - 10) : height / 2);
    const pen = this.canvas.getContext("2d");
    pen.scale(sharpness, sharpness);
    this.#curve(pen, { x, y, base, width, height });
    this.#clipped(pen, x);
    if (values.length <= width / 8) this.#points(pen, x, y);
    // An end that cannot be told from the base is the base: rounding alone would be written as 3e-6.
    const end = (value) => written(Math.abs(value - base) < (high - low) / 100 ? base : value, 3, plus(column));
    this.box.querySelector(".top").textContent = end(high);
    this.box.querySelector(".bottom").textContent = high > low ? end(low) : "";
  }

  /** A tick at the upper edge for each clipped token. */
  #clipped(pen, x) {
    pen.fillStyle = getComputedStyle(this.box).color;
    for (const place of this.drawn.clipped) pen.fillRect(x(place) - 0.75, 0, 1.5, 4);
  }

  #points(pen, x, y) {
    this.drawn.values.forEach((value, place) => {
      if (Number.isNaN(value)) return;
      pen.beginPath();
      pen.arc(x(place), y(value), 2.5, 0, 2 * Math.PI);
      pen.fillStyle = this.drawn.colour(value).replace(/[\d.]+\)$/, "1)"); // without the alpha of a background
      pen.fill();
    });
  }

  /** The line, and the area between it and the base: one colour above the base, another below. */
  #curve(pen, { x, y, base, width, height }) {
    const { column, values, colours } = this.drawn;
    const drawn = curve(values, width, x, y, y(base));
    const line = new Path2D(drawn.line);
    const area = new Path2D(drawn.area);
    const filled = (top, bottom, full, alpha) => {
      pen.save();
      pen.beginPath();
      pen.rect(0, top, width, bottom - top);
      pen.clip();
      pen.fillStyle = `rgba(${full.join(",")},${alpha})`;
      pen.fill(area);
      pen.strokeStyle = `rgb(${full.join(",")})`;
      pen.lineWidth = 1.25;
      pen.stroke(line);
      pen.restore();
    };
    if (column.signed) {
      filled(0, y(base), colours.up, 0.22);
      filled(y(base), height, colours.down, 0.22);
    } else filled(0, height, colours.size, 0.22);
    pen.strokeStyle = `rgba(${colours.none.join(",")},0.6)`;
    pen.lineWidth = 1;
    pen.strokeRect(-1, Math.round(y(base)) + 0.5, width + 2, 0);
  }
}
