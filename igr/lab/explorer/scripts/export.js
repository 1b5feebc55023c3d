"use strict";
// Pictures to take away: the plane as a PNG, and its animation as a GIF, which is encoded here.
const Export = (() => {
  const WIDTH = 640, HEIGHT = 512, HEAD = 30, FOOT = 46;

  // The plane with a title and the names of the paths, so that the picture explains itself.
  function compose(context, run, t) {
    const { state, result } = run, colour = tints(), width = WIDTH, tall = HEIGHT + HEAD + FOOT;
    context.fillStyle = colour.paper; context.fillRect(0, 0, width, tall);
    context.fillStyle = colour.ink; context.font = "600 15px system-ui, sans-serif"; context.textAlign = "left";
    context.fillText(`${Optimizers.table[state.opt].title}, h = ${tidy(state.h)}, on ${Losses[state.loss].title}`, 10, 20, width - 110);
    context.textAlign = "right"; context.font = "14px system-ui, sans-serif"; context.fillStyle = colour.soft;
    context.fillText(`step ${Math.floor(Math.min(t, result.descent.steps))}`, width - 10, 20);
    context.save(); context.translate(0, HEAD); context.beginPath(); context.rect(0, 0, width, HEIGHT); context.clip();
    Plane.draw(context, width, HEIGHT, run, t, colour);
    context.fillStyle = colour.ink; context.fillRect(Plane.toX(state, width)(state.a) - 5, Plane.toY(state, HEIGHT)(state.b) - 5, 10, 10);
    context.restore();
    context.textAlign = "left"; context.font = "13px system-ui, sans-serif";
    Object.keys(PATHS).filter((name) => result[name]).forEach((name, i) => {
      const x = 10 + (i % 2) * 320, y = HEAD + HEIGHT + 18 + 18 * Math.floor(i / 2), style = PATHS[name];
      context.strokeStyle = colour[name]; context.lineWidth = name === "descent" ? 1.5 : 4; context.setLineDash(style.dash ?? []);
      context.beginPath(); context.moveTo(x, y - 4); context.lineTo(x + 40, y - 4); context.stroke(); context.setLineDash([]);
      context.fillStyle = colour[name];
      if (style.dots) for (const k of [4, 20, 36]) { context.beginPath(); context.arc(x + k, y - 4, 3.4, 0, 7); context.fill(); }
      context.fillStyle = colour.ink; context.fillText(titleOf(name, state.opt), x + 48, y);
    });
  }
  function canvas(scale) {
    const made = document.createElement("canvas");
    made.width = WIDTH * scale; made.height = (HEIGHT + HEAD + FOOT) * scale;
    const context = made.getContext("2d", { willReadFrequently: true });
    context.scale(scale, scale);
    return [made, context];
  }
  async function png(run, t) {
    const [made, context] = canvas(2);
    compose(context, run, t);
    return new Promise((resolve) => made.toBlob(resolve, "image/png"));
  }

  // The 255 commonest colours of a picture in 15 bits; others are drawn in the nearest of them.
  function palette(pixels) {
    const count = new Uint32Array(32768), at = (from, i) => (from[i] >> 3) << 10 | (from[i + 1] >> 3) << 5 | from[i + 2] >> 3;
    for (let i = 0; i < pixels.length; i += 4) count[at(pixels, i)]++;
    const codes = [...count.keys()].filter((code) => count[code]).sort((u, v) => count[v] - count[u]).slice(0, 255);
    const chosen = codes.map((code) => [code >> 10, code >> 5 & 31, code & 31]), known = new Int16Array(32768).fill(-1);
    const nearest = (from, i) => {
      const code = at(from, i);
      if (known[code] < 0) {
        let best = 0, least = Infinity;
        chosen.forEach(([r, g, b], k) => { const d = (r - (code >> 10)) ** 2 + (g - (code >> 5 & 31)) ** 2 + (b - (code & 31)) ** 2; if (d < least) { least = d; best = k; } });
        known[code] = best;
      }
      return known[code];
    };
    return { chosen: chosen.map((each) => each.map((v) => Math.round(v * 255 / 31))), nearest };
  }
  function lzw(indices) {             // GIF's compression of 8-bit indices, in blocks of at most 255 bytes
    const bytes = [], CLEAR = 256, END = 257;
    let bits = 0, held = 0, size = 9, following = 258, table = new Map(), code = indices[0];
    const put = (value) => { held |= value << bits; bits += size; while (bits >= 8) { bytes.push(held & 255); held >>>= 8; bits -= 8; } };
    put(CLEAR);
    for (let i = 1; i < indices.length; i++) {
      const key = code << 8 | indices[i], known = table.get(key);
      if (known !== undefined) { code = known; continue; }
      put(code);
      if (following === 4096) { put(CLEAR); size = 9; following = 258; table = new Map(); }
      else { if (following === 1 << size) size++; table.set(key, following++); }
      code = indices[i];
    }
    put(code); put(END);
    if (bits) bytes.push(held & 255);
    const blocks = [];
    for (let i = 0; i < bytes.length; i += 255) { const piece = bytes.slice(i, i + 255); blocks.push(piece.length, ...piece); }
    blocks.push(0);
    return blocks;
  }
  const word = (value) => [value & 255, value >> 8];

  // Frames hold only what has changed; index 255 is transparent.
  async function gif(run, times, say) {
    const [made, context] = canvas(1), { width, height } = made, read = () => context.getImageData(0, 0, width, height).data;
    compose(context, run, times.at(-1)[0]);
    const { chosen, nearest } = palette(read()), parts = [], colours = chosen.flat();
    while (colours.length < 768) colours.push(0);
    parts.push(Uint8Array.from([...new TextEncoder().encode("GIF89a"), ...word(width), ...word(height), 0xf7, 0, 0, ...colours,
      0x21, 0xff, 11, ...new TextEncoder().encode("NETSCAPE2.0"), 3, 1, 0, 0, 0]));
    let before = null;
    for (const [i, [t, pause]] of times.entries()) {
      compose(context, run, t);
      const pixels = read(), now = new Uint8Array(width * height);
      for (let k = 0; k < now.length; k++) now[k] = nearest(pixels, 4 * k);
      const drawn = before ? now.map((v, k) => v === before[k] ? 255 : v) : now;
      before = now;
      parts.push(Uint8Array.from([0x21, 0xf9, 4, 0x05, ...word(Math.round(pause / 10)), 255, 0, 0x2c, 0, 0, 0, 0, ...word(width), ...word(height), 0, 8]), Uint8Array.from(lzw(drawn)));
      say(`${Math.round(100 * (i + 1) / times.length)} %`);
      await new Promise((next) => setTimeout(next));                // the page stays alive
    }
    parts.push(Uint8Array.from([0x3b]));
    return new Blob(parts, { type: "image/gif" });
  }
  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob); link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  return { png, gif, save };
})();
