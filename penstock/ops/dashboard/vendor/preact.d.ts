/** What the dashboard uses of Preact. */
export type Child = unknown;
export function h(type: unknown, props: unknown, ...children: unknown[]): Child;
export function render(child: Child, parent: Element): void;
export function Fragment(props: { children?: unknown }): Child;
