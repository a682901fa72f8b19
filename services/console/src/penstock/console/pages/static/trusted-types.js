// The content security policy lets text become HTML through this policy alone: only where htmx parses
// an answer of this console into a document in which nothing runs. Text never becomes script.
(() => {
  "use strict";
  const PARSERS = new Set(["Document parseHTMLUnsafe", "DOMParser parseFromString"]);
  globalThis.trustedTypes?.createPolicy("default", {
    createHTML: (text, _, sink) => (PARSERS.has(sink) ? text : null),
  });
})();
