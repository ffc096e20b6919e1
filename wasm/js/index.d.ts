export { BucketType, SourceType, SubjectType } from "../pkg/enumerations.js";
export * from "./api.js";
