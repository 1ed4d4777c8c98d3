/** What the dashboard uses of dagre. */
export class Graph {
  constructor(options?: { multigraph?: boolean; compound?: boolean });
  setGraph(options: Record<string, unknown>): this;
  setDefaultEdgeLabel(make: () => object): this;
  setNode(id: string, label: { width: number; height: number }): this;
  setEdge(from: string, to: string, label?: object, name?: string): this;
  node(id: string): { x: number; y: number; width: number; height: number };
  edge(from: string, to: string, name?: string): { points: { x: number; y: number }[] };
  graph(): { width: number; height: number };
}
export function layout(graph: Graph): void;
