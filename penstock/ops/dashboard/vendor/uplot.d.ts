/** What the dashboard uses of uPlot. */
export default class uPlot {
  width: number;
  constructor(options: Record<string, unknown>, data: (number | null)[][], parent: HTMLElement);
  setData(data: (number | null)[][], resetScales?: boolean): void;
  setSize(size: { width: number; height: number }): void;
  setScale(name: string, range: { min: number; max: number }): void;
  setSelect(place: { left: number; top: number; width: number; height: number }, tell?: boolean): void;
  setCursor(place: { left: number; top: number }, tell?: boolean): void;
  redraw(rebuildsPaths?: boolean, recalculatesAxes?: boolean): void;
  valToPos(value: number, scale: string, canvas?: boolean): number;
  posToVal(position: number, scale: string): number;
  destroy(): void;
  readonly root: HTMLElement;
  readonly ctx: CanvasRenderingContext2D;
  readonly bbox: { left: number; top: number; width: number; height: number };
  readonly cursor: { idx: number | null; left: number; top: number };
  readonly select: { left: number; width: number };
  readonly data: (number | null)[][];
  readonly scales: Record<string, { min: number; max: number }>;
  static sync(key: string): unknown;
}
