// Of a page that is a file (page_file.py): unpacks its numbers for feed.js, and its scripts, which it then runs. It is no
// module, since a page without an address has none.

const packed = (id) => {
  const text = atob(document.getElementById(id).textContent), bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return bytes;
};
globalThis.unpacked = (id) =>
  new Response(new Blob([packed(id)]).stream().pipeThrough(new DecompressionStream("deflate")));
const refuse = () => {
  document.getElementById("notice").hidden = false;
  document.getElementById("notice").textContent = "This browser is too old for this page, which is packed. Browsers of 2023 and later show it.";
};
try {
  unpacked("packed-scripts").text().then((text) => {
    const script = document.createElement("script");
    script.textContent = text;
    document.body.append(script);
  }, refuse);
} catch {
  refuse();
}
