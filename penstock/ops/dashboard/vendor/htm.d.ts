declare const htm: {
  bind<R>(h: (type: any, props: any, ...children: any[]) => R): (text: TemplateStringsArray, ...values: any[]) => R;
};
export default htm;
