// Package compare measures package larder against other clients, on the same server, and against a loop written by hand:
//
//	LARDER_SERVER=…/larder go test -run - -bench . -benchtime 1x
//
// Contenders take turns in rounds, in an order that is drawn anew in each. The result is the processor time of this process, the
// client's, for an operation: the median of the rounds. Beside it stands the median of each contender's ratio to larder in the
// same round, which a busy machine changes least. Wall time says more about the machine.
package compare
