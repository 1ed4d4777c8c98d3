/** What the dashboard uses of Preact's hooks. */
type Update<S> = (next: S | ((former: S) => S)) => void;
export function useState<S>(initial: S | (() => S)): [S, Update<S>];
export function useReducer<S, A>(reduce: (state: S, action: A) => S, initial: S): [S, (action: A) => void];
export function useEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useMemo<T>(make: () => T, inputs?: readonly unknown[]): T;
export function useRef<T>(initial: T): { current: T };
export function useCallback<T>(call: T, inputs: readonly unknown[]): T;
export function useErrorBoundary(seen?: (error: Error) => void): [Error | undefined, () => void];
