// The key "/" leads to the search field of the page. The browser does it without asking the
// console's process, so that keys which are typed right after it reach the field.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  const at = document.activeElement;
  if (at && (at.isContentEditable || /^(input|textarea|select)$/i.test(at.tagName))) return;
  const field = document.querySelector("input.search-field, .search-field input");
  if (!field || document.querySelector("[role=dialog]")) return;
  event.preventDefault();
  field.focus();
  field.select();
});
